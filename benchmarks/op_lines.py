"""The ops that sweep.py --ops times: expressions over named operands, by family. What is timed how is in sweep.py."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

SIDES = (10, 100, 1000)  # x is SIDE x SIDE: 1e2, 1e4 and 1e6 items

# Over x and y (float32, normal), u (uniform), each at every size; and in bfloat16 and float16 where it says so.
POINTWISE = """
abs neg sign ceil floor round trunc frac sqrt rsqrt exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan erf erfc
sigmoid logit reciprocal square relu isnan isinf isfinite signbit nan_to_num deg2rad angle positive digamma lgamma
sinc i0
""".split()
UNIT = """
log log2 log10 log1p asin acos atanh erfinv
""".split()
ACTIVATIONS = """
relu relu6 elu selu celu leaky_relu gelu silu mish softplus softsign hardtanh hardswish hardsigmoid hardshrink
softshrink tanhshrink logsigmoid threshold(x,0.1,20) glu softmax(x,-1) softmax(x,0) log_softmax(x,-1) log_softmax(x,0)
softmin(x,-1) normalize gumbel_softmax dropout alpha_dropout
""".split()
EXACT = """
x+y | x-y | x*y | x/y | x+1.5 | 2.0/x | x**2 | x**3 | u**0.7 | u**y | x//y | x%y | x.fmod(y) | x.remainder(1.5)
x.maximum(y) | x.fmin(y) | x.atan2(y) | x.hypot(y) | x.copysign(y) | x.logaddexp(y) | x.lerp(y,0.3) | x.lerp(y,u)
x.addcmul(y,u) | x.addcdiv(y,u) | x.clamp(-1,1) | x.clamp(min=y) | x==y | x<y | x>0 | (x>0)&(y>0) | ~(x>0)
x.isclose(y) | T.where(x>0,x,y) | T.where(x>0,x,0.0) | x.masked_fill(m,0.0) | x+row | x*col | row+col | x.t()+y
x.add(y,alpha=2) | x.nextafter(y) | x.ldexp(y) | x.xlogy(u) | x.heaviside(y) | T.sub(x,y,alpha=0.5) | x.float_power(2)
x.add_(0.0) | x.mul_(1.0) | x.copy_(y) | x.fill_(1) | x.zero_() | T.polar(x,y) | T.complex(x,y) | T.gcd(i,j) | i+j | i*j
i//(j+1) | i%7 | i&j | i<<1 | i==j | i.abs() | i.float() | i.sum() | i.max() | i.cumsum(0) | i.sort() | i.bitwise_not()
"""
REDUCE = """
sum() sum(0) sum(1) mean() mean(0) mean(1) prod() prod(0) prod(1) max() max(0) max(1) min(0) amax(0) amax(1) amin()
aminmax() argmax() argmax(0) argmax(1) std() std(0) std(1) var() var(0) var(1) norm() norm(dim=0) norm(dim=1) norm(1)
norm(p=3) norm(float('inf')) logsumexp(0) logsumexp(1) any() all() all(0) any(1) cumsum(0) cumsum(1) cumprod(0)
cumprod(1) cummax(0) cummax(1) cummin(1) logcumsumexp(0) logcumsumexp(1) nansum() nansum(1) nanmean(1) median()
median(0) median(1) nanmedian() mode(0) mode(1) kthvalue(3,1) kthvalue(3,0) quantile(0.3) quantile(0.3,0)
quantile(0.3,1) nanquantile(0.3,1) count_nonzero() count_nonzero(1) diff() renorm(2,0,1.0) cov() corrcoef() trace()
sum((0,1)) diff(dim=0) std_mean(0)
""".split()
ORDER = """
x.sort() | x.sort(0) | x.sort(descending=True) | x.flatten().sort() | x.argsort() | x.sort(stable=True) | x.topk(5)
x.topk(5,0) | x.flatten().topk(5) | x.topk(SIDE//2) | x.flatten().topk(SIDE) | i.unique()
i.unique(return_inverse=True) | i.unique(return_counts=True) | i.unique(dim=0) | i.flatten().unique_consecutive()
x.msort() | T.searchsorted(s,x) | T.bucketize(x,sv) | T.isin(i,iv) | i.flatten().bincount() | x.histc(50)
T.histogram(x,50) | T.histogramdd(x[:,:2],(5,5)) | b.sort() | h.sort() | i.flatten().sort() | i.flatten().argsort()
b.topk(5) | x.flatten().kthvalue(5) | x.nonzero() | m.nonzero() | T.argwhere(m) | x.flatten().argsort()
"""
INDEX = """
x.gather(0,i) | x.gather(1,i) | x.scatter(0,i,y) | x.scatter(1,i,y) | x.scatter_add(0,i,y) | x.scatter_add(1,i,y)
x.scatter(1,i,1.0) | x.scatter_reduce(0,i,y,'amax') | x.scatter_reduce(1,i,y,'mean') | x.scatter_reduce(1,i,y,'prod')
x.index_select(0,p) | x.index_select(1,p) | x[p] | x[:,p] | x[p,p] | x[p][:,p] | x[p[:,None],p] | x[m]
x.masked_select(m) | x.masked_scatter(m,y) | x.take(i) | x.take_along_dim(i,1) | x.put(i,y) | x.index_add(0,p,y)
x.index_add(1,p,y) | x.index_copy(0,p,y) | x.index_copy(1,p,y) | x.index_fill(0,p,1.0) | x.index_fill(1,p,1.0)
x.index_put((p,p),s) | x.index_put((p,),y) | x.index_put((p,p),s,accumulate=True) | x.index_put((p,),y,accumulate=True)
x.index_put((i,i),y,accumulate=True) | x.index_put((m,),zero) | x.index_reduce(0,p,y,'amax') | x[::2]*1 | x[:,::2]*1
x[...,0]*1 | x[0]*1 | x.diagonal()*1 | x.tril() | x.triu() | x.diag() | s.diag() | s.diag_embed()
x.select_scatter(s,0,1) | x.slice_scatter(y[:2],0,0,2) | x.diagonal_scatter(s) | F.embedding(p,x)
F.embedding(i[:50],x) | F.embedding_bag(i,x) | F.embedding_bag(i,x,mode='sum') | F.embedding_bag(i,x,mode='max')
F.one_hot(p) | T.tril_indices(SIDE,SIDE) | T.combinations(s[:100]) | T.cartesian_prod(s,s)
T.meshgrid(s,s,indexing='ij')[0]*1
"""
COPIES = """
x.clone() | x.t().contiguous() | x.T.clone() | x.to(T.float64) | x.double().float() | x.to(T.bfloat16) | x.to(T.float16)
b.float() | h.float() | x.int() | x.long() | x.bool() | i.int() | m.float() | x.to(T.uint8) | i.to(T.uint8)
x.to(T.complex64) | b.to(T.float16) | T.cat([x,y]) | T.cat([x,y],1) | T.cat([x,y,x,y],1) | T.stack([x,y])
T.stack([x,y],1) | T.stack([x,y],-1) | T.hstack([x,y]) | x.repeat(2,2) | x.repeat_interleave(2)
x.repeat_interleave(2,0) | x.repeat_interleave(2,1) | x.tile((1,3)) | x.expand(3,SIDE,SIDE).contiguous() | x.flip(0)
x.flip(1) | x.flip(0,1) | x.roll(3) | x.roll(1,0) | x.roll(1,1) | x.roll((1,2),(0,1)) | x.rot90() | F.pad(x,(1,1))
F.pad(x,(1,1,2,2)) | F.pad(c3,(1,1),mode='reflect') | F.pad(c4,(1,1,1,1),mode='reflect')
F.pad(c4,(1,1,1,1),mode='replicate') | F.pad(c4,(1,1,1,1),mode='circular') | c4.permute(0,2,3,1).contiguous()
c4.permute(3,1,2,0).contiguous() | c4.transpose(1,2).contiguous() | c4.to(memory_format=T.channels_last)
c4.flatten(1)*1 | x.unfold(1,4,2)*1 | x.split(2)[0]*1 | x.chunk(3,1)[1].contiguous() | T.block_diag(x,y)
T.zeros(SIDE,SIDE) | T.ones(SIDE,SIDE) | T.full((SIDE,SIDE),2.5) | T.arange(SIDE*SIDE) | T.linspace(0,1,SIDE*SIDE)
T.logspace(0,1,SIDE*SIDE) | T.eye(SIDE) | x.tolist() | T.tensor(lst) | x.new_zeros(SIDE) | T.zeros_like(x)
T.empty_like(x).fill_(2) | T.vander(s) | x.numpy() | x.movedim(0,1).reshape(-1) | x.t().reshape(-1) | x.view(T.int32)+0
x.as_strided((SIDE,SIDE),(1,SIDE)).clone() | T.kron(s,s) | T.outer(s,s) | b.t().contiguous() | i.t().contiguous()
m.t().contiguous()
"""
RANDOM = """
T.randn(SIDE,SIDE) | T.rand(SIDE,SIDE) | T.randint(0,100,(SIDE,SIDE)) | T.randperm(SIDE*SIDE) | T.bernoulli(u)
T.empty(SIDE,SIDE).bernoulli_(0.3) | T.multinomial(u,5,True) | T.multinomial(u,SIDE//2) | T.normal(x,u) | T.poisson(u)
T.empty(SIDE,SIDE).exponential_() | T.empty(SIDE,SIDE).geometric_(0.5) | T.empty(SIDE,SIDE).cauchy_()
T.empty(SIDE,SIDE).log_normal_() | T.empty(SIDE,SIDE).uniform_(-1,1) | T.rand_like(x) | F.dropout(x,0.1)
F.dropout2d(c4,0.1) | F.rrelu(x,training=True) | T.empty(SIDE,SIDE).random_() | T.rand(SIDE,SIDE,dtype=T.float64)
T.randn(SIDE,SIDE,dtype=T.float64) | T._standard_gamma(u) | T.randn(SIDE,SIDE,dtype=T.bfloat16)
"""
PRODUCTS = """
x@y | x@y.t() | x.t()@y | x@s | x.mv(s) | s@s | s.dot(s) | T.addmm(row,x,y) | T.addmv(s,x,s) | T.addr(x,s,s)
T.einsum('ij,jk->ik',x,y) | T.einsum('ij,ij->i',x,y) | T.einsum('ij,ij->',x,y) | T.einsum('ij->ji',x)*1
T.einsum('bij,bjk->bik',c3,c3t) | T.einsum('bchw,dc->bdhw',c4,w2) | T.tensordot(x,y,2) | T.tensordot(c4,w2,([1],[1]))
T.inner(x,y) | x.double()@y.double() | b@b | h@h | i@j | T.vdot(s,s) | T.baddbmm(c3s,c3,c3t) | T.matmul(c4,c4.mT)
T.linalg.multi_dot([x,y,x]) | T.chain_matmul(x,y) | F.linear(x,y,s) | F.bilinear(x[:10],y[:10],c3b) | T.cdist(x,y)
T.cdist(x,y,p=1) | F.pdist(x[:200]) | F.cosine_similarity(x,y) | F.pairwise_distance(x,y)
T.cross(x[:,:3],y[:,:3],dim=1) | z@z | T.matrix_power(x,3) | T.bmm(c3,c3t) | T.bmm(b3,b3.mT)
"""
LOSSES = """
F.mse_loss(x,y) | F.l1_loss(x,y) | F.smooth_l1_loss(x,y) | F.huber_loss(x,y) | F.cross_entropy(x,p)
F.cross_entropy(x,u) | F.cross_entropy(x,p,label_smoothing=0.1) | F.nll_loss(x,p) | F.binary_cross_entropy(u,v)
F.binary_cross_entropy_with_logits(x,u) | F.kl_div(x,u) | F.poisson_nll_loss(x,u) | F.gaussian_nll_loss(x,y,u)
F.hinge_embedding_loss(x,sign) | F.margin_ranking_loss(x,y,sign) | F.soft_margin_loss(x,sign) | F.multi_margin_loss(x,p)
F.multilabel_soft_margin_loss(x,v) | F.triplet_margin_loss(x,y,u) | F.cosine_embedding_loss(x,y,sign[0])
F.multilabel_margin_loss(x,i)
"""
# Of one size each: operands by their shape, e.g. a(2,3) is a normal tensor of 2 x 3.
FIXED = """
L.solve(sq(8),a(8,3)) | L.solve(sq(200),a(200,3)) | L.solve(sq(1000,8),a(1000,8,3)) | L.inv(sq(8)) | L.inv(sq(300))
L.inv(sq(1000,4)) | L.inv(sq(1000,3)) | L.det(sq(8)) | L.det(sq(300)) | L.det(sq(1000,4)) | L.slogdet(sq(100))
L.slogdet(sq(1000,4)) | L.cholesky(sp(8)) | L.cholesky(sp(300)) | L.cholesky(sp(1000,4)) | L.qr(a(8,8))
L.qr(a(300,300)) | L.qr(a(1000,4,4)) | L.qr(a(2000,20)) | L.svd(a(8,8)) | L.svd(a(200,200)) | L.svd(a(500,4,4))
L.svd(a(500,20),full_matrices=False) | L.svdvals(a(200,200)) | L.eigh(sp(8)) | L.eigh(sp(200)) | L.eigh(sp(500,4))
L.eigvalsh(sp(200)) | L.eig(a(8,8)) | L.eig(a(100,100)) | L.eigvals(a(100,100)) | L.lstsq(a(200,20),a(200,3))
L.pinv(a(100,50)) | L.matrix_exp(a(8,8)) | L.matrix_exp(a(100,100)) | L.matrix_exp(a(500,4,4)) | L.lu_factor(a(300,300))
L.lu(a(100,100)) | L.solve_triangular(sp(300),a(300,5),upper=False)
L.solve_triangular(sp(1000,4),a(1000,4,2),upper=False) | T.cholesky_solve(a(300,5),sp(300))
T.cholesky_inverse(sp(300)) | L.matrix_rank(a(100,100)) | L.matrix_norm(a(300,300)) | L.matrix_norm(a(100,100),2)
L.vector_norm(a(1000,1000)) | L.vector_norm(a(1000,1000),3,1) | L.cond(a(100,100))
L.householder_product(a(100,20),a(20)) | T.ormqr(a(100,20),a(20),a(100,5)) | L.ldl_factor(sp(100))
L.lu_solve(*L.lu_factor(a(100,100)),a(100,3)) | L.cross(a(10000,3),a(10000,3)) | L.tensorinv(a(12,3,4),ind=1)
T.fft.fft(a(1000,1000)) | T.fft.fft(a(1<<16)) | T.fft.fft(a(1009)) | T.fft.fft(a(100,100)) | T.fft.rfft(a(1000,1000))
T.fft.irfft(ca(1000,501)) | T.fft.ifft(ca(100,1024)) | T.fft.fft2(a(8,128,128)) | T.fft.rfft2(a(8,256,256))
T.fft.fftn(a(32,32,32)) | T.fft.fft(a(1000,1000),dim=0) | T.fft.fftshift(a(1000,1000)) | T.fft.fft(a(64))
T.fft.hfft(ca(100,513)) | T.stft(a(4,16000),400,160,window=a(400),return_complex=True)
T.istft(ca(4,201,100),400,160,window=T.hann_window(400)) | T.hann_window(400) | F.conv1d(a(8,32,1000),a(64,32,3))
F.conv1d(a(8,32,1000),a(64,32,3),padding=1,stride=2) | F.conv1d(a(1,80,3000),a(512,80,3),padding=1)
F.conv1d(a(8,64,500),a(64,1,7),groups=64,padding=3) | F.conv1d(a(8,32,1000),a(32,32,3),dilation=4,padding=4)
F.conv1d(a(1,1,16000),a(512,1,10),stride=5) | F.conv1d(a(4,512,300),a(512,512,1))
F.conv3d(a(1,3,16,56,56),a(32,3,3,3,3),padding=1) | F.conv3d(a(2,16,8,28,28),a(32,16,3,3,3),padding=1)
F.conv3d(a(2,64,8,14,14),a(64,64,3,3,3),padding=1) | F.conv3d(a(1,64,8,28,28),a(128,64,1,1,1))
F.conv3d(a(1,32,8,28,28),a(32,1,3,3,3),groups=32,padding=1) | F.conv3d(a(1,16,16,28,28),a(32,16,2,2,2),stride=2)
F.conv_transpose1d(a(8,64,200),a(64,32,4),stride=2,padding=1) | F.conv_transpose2d(a(4,64,28,28),a(64,32,2,2),stride=2)
F.conv_transpose2d(a(4,64,28,28),a(64,64,4,4),stride=2,padding=1) | F.conv_transpose2d(a(8,100,1,1),a(100,256,4,4))
F.conv_transpose2d(a(4,32,28,28),a(32,32,3,3),padding=1) | F.conv_transpose3d(a(1,32,8,8,8),a(32,16,2,2,2),stride=2)
F.conv2d(a(4,64,56,56),a(64,64,3,3),dilation=2,padding=2) | F.conv2d(a(4,64,28,28),a(64,8,3,3),groups=8,padding=1)
F.conv2d(a(8,128,28,28),a(128,4,3,3),groups=32,padding=1) | F.conv2d(cl(8,64,56,56),cl(64,64,3,3),padding=1)
F.conv2d(cl(8,256,28,28),cl(128,256,1,1)) | F.conv2d(cl(8,128,28,28),cl(128,1,3,3),groups=128,padding=1)
F.conv2d(cl(8,3,112,112),cl(32,3,3,3),stride=2,padding=1) | F.conv2d(cl(4,512,7,7),cl(512,512,3,3),padding=1)
F.conv2d(cl(8,128,56,56),cl(128,128,3,3),stride=2,padding=1)
F.conv2d(a(8,64,28,28).bfloat16(),a(64,64,3,3).bfloat16(),padding=1)
F.conv2d(a(8,64,28,28).half(),a(64,64,3,3).half(),padding=1)
F.conv2d(a(4,32,28,28).double(),a(32,32,3,3).double(),padding=1) | F.max_pool1d(a(8,64,1000),3,2)
F.avg_pool1d(a(8,64,1000),3,2) | F.max_pool3d(a(2,32,16,28,28),2) | F.avg_pool3d(a(2,32,16,28,28),2)
F.max_pool2d(a(8,64,56,56),2) | F.max_pool2d(a(8,64,56,56),3,2,1,return_indices=True)
F.max_pool2d(a(8,64,56,56),3,1,1) | F.avg_pool2d(a(8,64,56,56),3,2,1) | F.avg_pool2d(a(8,64,56,56),7)
F.adaptive_avg_pool2d(a(8,64,56,56),7) | F.adaptive_max_pool2d(a(8,64,56,56),7) | F.adaptive_avg_pool1d(a(8,64,1000),10)
F.adaptive_avg_pool3d(a(2,32,16,28,28),1) | F.lp_pool2d(a(8,64,56,56),2,2)
F.fractional_max_pool2d(a(4,32,28,28),2,output_size=14) | F.max_pool2d(cl(8,64,56,56),3,2,1)
F.avg_pool2d(cl(8,64,56,56),2) | F.max_pool2d(a(8,64,56,56).bfloat16(),2)
F.max_unpool2d(*F.max_pool2d(a(4,32,28,28),2,return_indices=True),2) | F.group_norm(a(8,64,56,56),8)
F.group_norm(a(8,64,16,16),8,a(64),a(64)) | F.instance_norm(a(8,64,56,56))
F.batch_norm(a(8,64,56,56),None,None,a(64),a(64),True) | F.batch_norm(a(8,64,56,56),a(64),T.ones(64),a(64),a(64),False)
F.batch_norm(a(256,512),None,None,a(512),a(512),True) | F.batch_norm(a(16,64,500),None,None,a(64),a(64),True)
F.batch_norm(cl(8,64,56,56),None,None,a(64),a(64),True) | F.layer_norm(a(64,128,768),(768,),a(768),a(768))
F.layer_norm(a(64,128,32),(32,)) | F.layer_norm(a(8,64,28,28),(64,28,28)) | F.rms_norm(a(64,128,768),(768,),a(768))
F.rms_norm(a(16,64),(64,)) | F.rms_norm(a(64,128,768).bfloat16(),(768,),a(768).bfloat16())
F.layer_norm(a(64,128,768).bfloat16(),(768,),a(768).bfloat16(),a(768).bfloat16())
F.local_response_norm(a(8,64,28,28),5) | F.layer_norm(a(32,64),(64,),a(64),a(64))
F.batch_norm(a(8,32,8,14,14),None,None,None,None,True)
F.scaled_dot_product_attention(a(2,8,256,64),a(2,8,256,64),a(2,8,256,64))
F.scaled_dot_product_attention(a(2,8,256,64),a(2,8,256,64),a(2,8,256,64),is_causal=True)
F.scaled_dot_product_attention(a(2,8,256,64),a(2,8,256,64),a(2,8,256,64),attn_mask=a(256,256))
F.scaled_dot_product_attention(a(2,8,256,64),a(2,8,256,64),a(2,8,256,64),attn_mask=a(256,256)>0)
F.scaled_dot_product_attention(a(2,8,256,64),a(2,2,256,64),a(2,2,256,64),enable_gqa=True)
F.scaled_dot_product_attention(a(2,8,1,64),a(2,8,500,64),a(2,8,500,64))
F.scaled_dot_product_attention(a(2,8,16,32),a(2,8,16,32),a(2,8,16,32))
F.scaled_dot_product_attention(a(2,8,256,64).bfloat16(),a(2,8,256,64).bfloat16(),a(2,8,256,64).bfloat16())
F.scaled_dot_product_attention(a(2,8,256,64).half(),a(2,8,256,64).half(),a(2,8,256,64).half(),is_causal=True)
F.scaled_dot_product_attention(a(1,4,1024,128),a(1,4,1024,128),a(1,4,1024,128),is_causal=True)
F.scaled_dot_product_attention(a(64,4,50,16),a(64,4,50,16),a(64,4,50,16))
F.scaled_dot_product_attention(a(2,8,256,64),a(2,8,256,64),a(2,8,256,64),dropout_p=0.1)
F.multi_head_attention_forward(a(50,4,64),a(50,4,64),a(50,4,64),64,4,a(192,64),a(192),None,None,False,0.0,a(64,64),a(64))[0]
F.unfold(a(8,16,28,28),3,padding=1) | F.fold(a(8,144,784),28,3,padding=1)
F.grid_sample(a(8,16,64,64),a(8,64,64,2),align_corners=False)
F.grid_sample(a(8,16,64,64),a(8,64,64,2),mode='nearest',align_corners=False)
F.grid_sample(a(8,16,64,64),a(8,64,64,2),mode='bicubic',align_corners=False)
F.grid_sample(a(2,8,16,16,16),a(2,16,16,16,3),align_corners=False)
F.grid_sample(a(8,16,64,64),a(8,64,64,2),padding_mode='reflection',align_corners=False)
F.affine_grid(a(8,2,3),(8,3,64,64),False) | F.interpolate(a(8,16,32,32),scale_factor=2)
F.interpolate(a(8,16,32,32),scale_factor=2,mode='bilinear') | F.interpolate(a(8,16,32,32),scale_factor=2,mode='bicubic')
F.interpolate(a(8,16,64,64),(32,32),mode='area') | F.interpolate(a(8,16,64,64),(32,32),mode='bilinear',antialias=True)
F.interpolate(a(8,16,500),scale_factor=2,mode='linear') | F.interpolate(a(2,8,16,16,16),scale_factor=2,mode='trilinear')
F.interpolate(a(8,16,500),scale_factor=2) | F.interpolate(a(2,8,16,16,16),scale_factor=2)
F.interpolate(cl(8,16,32,32),scale_factor=2,mode='bilinear')
F.interpolate(a(1,3,480,640),(224,224),mode='bicubic',antialias=True)
F.interpolate(a(8,16,32,32),scale_factor=2,mode='nearest-exact')
F.interpolate(a(64,512,4,4),scale_factor=2,mode='bilinear') | F.pixel_shuffle(a(8,64,32,32),2)
F.pixel_unshuffle(a(8,16,64,64),2) | F.channel_shuffle(a(8,64,28,28),4) | F.embedding(ids(64,128,hi=50000),a(50000,64))
F.embedding_bag(ids(512,20,hi=50000),a(50000,64))
F.ctc_loss(a(50,8,20).log_softmax(-1),ids(8,10,hi=19)+1,T.full((8,),50),T.full((8,),10))
F.cross_entropy(a(64,10),ids(64,hi=10)) | F.cross_entropy(a(4,20,64,64),ids(4,64,64,hi=20))
F.cross_entropy(a(2000,32000),ids(2000,hi=32000)) | T.bincount(ids(100000,hi=100))
T.bincount(ids(100000,hi=100),a(100000)) | a(1000000).histc(100) | T.histogram(a(100000),100)
T.cdist(a(1000,3),a(1000,3)) | T.cdist(a(500,128),a(500,128),p=1) | a(8,512,50).max(1) | a(8,512,50).sum(1)
a(8,512,50).mean((0,2)) | a(50,8,512).sum(0) | a(8,50,512).softmax(1) | a(8,512,50).cumsum(1) | a(8,512,50).argmax(1)
a(64,3,32,32).sum((2,3)) | a(64,3,32,32).mean((0,2,3)) | a(64,3,32,32).amax((2,3)) | a(64,3,32,32).var((0,2,3))
a(1000000).sum() | a(1000000).cumsum(0) | a(1000000).sort() | a(1000000).topk(100) | a(1000000).median()
a(1000000,2).sum(1) | a(2,1000000).sum(1) | a(1000000,2).sum(0) | a(1000000,3).max(1) | a(1000000).unique()
ids(1000000,hi=1000).unique() | ids(1000000,hi=1000).sort() | a(1000,1000).bfloat16().sum(1)
a(1000,1000).bfloat16().softmax(1) | a(1000,1000).half().sum(0) | a(1000,1000).bfloat16().max(1)
a(1000,1000).bfloat16().cumsum(1) | T.combinations(a(200)) | a(300,300).triu_() | T.trapezoid(a(1000,1000))
T.cumulative_trapezoid(a(1000,1000)) | a(1000,1000).logdet() | T.pca_lowrank(a(200,100)) | T.lobpcg(sp(60),2)
a(100,100,100).permute(2,0,1).contiguous() | a(100,100,100).transpose(0,2).contiguous()
a(10,10,10,10,10).permute(4,2,0,1,3).contiguous() | a(1000,1000)[:,5:].contiguous() | a(1000,1000).t()[5:].sum(1)
a(1000,1000).t().softmax(1) | a(1000,1000).t().exp() | a(1000,1000)[::2,::2].exp() | a(1000,1000).t().cumsum(1)
a(1000,1000).t().sort(1) | a(1000,1000).t().argmax(1) | a(1000,1000).unsqueeze(0).expand(4,1000,1000).sum(0)
(a(1000,1,100)*a(1,100,100)).sum(-1) | a(100,1,100)+a(1,100,100) | a(100,100,1)*a(100,100,100) | a(100,1,1)*a(1,100,100)
ca(300,300)@ca(300,300) | ca(1000,1000).abs() | ca(1000,1000)*ca(1000,1000) | ca(1000,1000).exp() | ca(1000,1000).sum(0)
ca(1000,1000).angle() | ca(1000,1000).conj()*1 | T.view_as_real(ca(1000,1000))*1 | ca(1000,1000).real*1
T.special.bessel_j0(a(100,100)) | T.special.i1e(a(100,100)) | T.special.zeta(a(100,100).abs()+2,a(100,100).abs()+1)
T.special.ndtri(a(100,100).sigmoid()) | T.special.entr(a(100,100)) | T.special.polygamma(2,a(100,100).abs())
T.igamma(a(100,100).abs(),a(100,100).abs()) | T.special.log_ndtr(a(100,100)) | T.special.erfcx(a(100,100))
T.special.gammainc(a(100,100).abs(),a(100,100).abs()) | T.polygamma(1,a(100,100).abs()+1) | T.special.i1e(a(100,100).double())
a(100,100).double().exp() | a(100,100).double().tanh() | a(100,100).double().sin() | a(100,100).double().erf()
a(100,100).double().abs().log1p() | T.atan2(a(100,100).double(),a(100,100).double()) | a(1000,1000).half()*a(1000,1000).half()
a(1000,1000).bfloat16().sum(0) | F.multilabel_margin_loss(a(100,100),ids(100,100,hi=100))
F.grid_sample(a(8,3,64,64),a(8,64,64,2),align_corners=False)
"""
# Forward and backward of the sum: of every size, and of one size.
BACKWARD = """
x.exp() | x*y | x/y | x.sigmoid() | x.tanh() | F.gelu(x) | F.silu(x) | x.softmax(-1) | x.log_softmax(-1) | x.sum(0)
x.mean() | x.max(1)[0] | x.std(1) | x.norm(dim=1) | x.cumsum(1) | x.cumprod(1) | x.logsumexp(1) | x@y | x.sort()[0]
x.topk(5)[0] | x.gather(1,i) | x[p] | x[m] | x.index_select(1,p) | x.index_add(0,p,y) | T.cat([x,y],1)
x.t().contiguous() | x.repeat(2,1) | F.pad(x,(1,1)) | x.roll(1,0) | x.flip(1) | T.where(m,x,y) | x.clamp(-1,1) | x**2
x**3 | F.cross_entropy(x,p) | F.mse_loss(x,y) | F.binary_cross_entropy_with_logits(x,u) | F.embedding(i[:50],x)
F.layer_norm(x,(SIDE,)) | F.dropout(x,0.2) | x+row | x.tril() | x.var(0) | x.amax(1) | x.prod(1) | T.cdist(x,y)
F.cosine_similarity(x,y) | F.normalize(x) | x.logcumsumexp(1) | x.abs() | F.smooth_l1_loss(x,y) | F.softplus(x)
x.lerp(y,0.3) | x.expand(4,SIDE,SIDE)*1 | x.scatter(1,i,y) | x.masked_fill(m,0.) | x.unfold(1,4,2)*1 | x.diagonal()*1
x.view(-1).split(SIDE)[0]*1
"""
FIXED_BACKWARD = """
F.conv1d(g(8,32,1000),g(64,32,3)) | F.conv3d(g(2,16,8,28,28),g(32,16,3,3,3),padding=1)
F.conv_transpose2d(g(4,64,28,28),g(64,32,2,2),stride=2) | F.conv2d(g(8,128,28,28),g(128,4,3,3),groups=32,padding=1)
F.conv2d(gcl(8,64,28,28),gcl(64,64,3,3),padding=1) | F.conv2d(gcl(8,256,28,28),gcl(128,256,1,1))
F.conv2d(gcl(8,128,28,28),gcl(128,1,3,3),groups=128,padding=1) | F.conv2d(g(8,64,56,56),g(64,64,3,3),stride=2,padding=1)
F.max_pool2d(g(8,64,56,56),2) | F.avg_pool2d(g(8,64,56,56),2) | F.adaptive_avg_pool2d(g(8,64,56,56),7)
F.max_pool1d(g(8,64,1000),2) | F.max_pool3d(g(2,32,16,28,28),2) | F.avg_pool3d(g(2,32,16,28,28),2)
F.group_norm(g(8,64,28,28),8,g(64),g(64)) | F.instance_norm(g(8,64,28,28))
F.batch_norm(g(8,64,28,28),None,None,g(64),g(64),True) | F.batch_norm(gcl(8,64,28,28),None,None,g(64),g(64),True)
F.layer_norm(g(64,128,768),(768,),g(768),g(768)) | F.rms_norm(g(64,128,768),(768,),g(768))
F.batch_norm(g(256,512),None,None,g(512),g(512),True)
F.scaled_dot_product_attention(g(2,8,256,64),g(2,8,256,64),g(2,8,256,64))
F.scaled_dot_product_attention(g(2,8,256,64),g(2,8,256,64),g(2,8,256,64),is_causal=True)
F.scaled_dot_product_attention(g(2,8,16,32),g(2,8,16,32),g(2,8,16,32))
F.interpolate(g(8,16,32,32),scale_factor=2,mode='bilinear') | F.interpolate(g(8,16,32,32),scale_factor=2)
F.interpolate(g(8,16,32,32),scale_factor=2,mode='bicubic')
F.grid_sample(g(8,16,64,64),g(8,64,64,2),align_corners=False) | F.unfold(g(8,16,28,28),3,padding=1)
F.fold(g(8,144,784),28,3,padding=1) | F.pixel_shuffle(g(8,64,32,32),2) | F.embedding(ids(64,128,hi=50000),g(50000,64))
F.embedding_bag(ids(512,20,hi=5000),g(5000,64))
F.ctc_loss(g(50,8,20).log_softmax(-1),ids(8,10,hi=19)+1,T.full((8,),50),T.full((8,),10))
F.cross_entropy(g(2000,10000),ids(2000,hi=10000)) | F.cross_entropy(g(4,20,64,64),ids(4,64,64,hi=20))
L.inv(g(100,100)) | L.solve(g(100,100),g(100,3)) | L.det(g(100,100)) | L.cholesky(gsp(100)) | L.qr(g(100,50))[0]
L.eigh(gsp(100))[0] | L.svdvals(g(100,50)) | L.svd(g(100,50),full_matrices=False)[1] | T.fft.rfft(g(100,1000)).abs()
F.linear(g(512,768),g(3072,768),g(3072)) | F.prelu(g(100,1000),g(1)) | F.bilinear(g(32,50),g(32,50),g(20,50,50))
F.lp_pool2d(g(8,64,28,28),2,2) | F.pad(g(8,16,28,28),(1,1,1,1),mode='reflect') | F.glu(g(512,1024))
T.einsum('bhid,bhjd->bhij',g(2,8,100,32),g(2,8,100,32)) | T.bmm(g(64,50,50),g(64,50,50))
F.linear(g(512,768).bfloat16(),g(768,768).bfloat16()) | F.layer_norm(g(64,128,768).bfloat16(),(768,))
"""
OPTIMIZERS = """
SGD SGD(momentum=0.9) Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD Rprop Adam(foreach=False)
Adam(fused=True) Adam(amsgrad=True)
""".split()


def lines(text: str) -> list[str]:
    return [part.strip() for row in text.splitlines() for part in row.split("|") if part.strip()]


def sized() -> Iterator[str]:
    yield from (f"x.{name}()" if name != "i0" else "T.i0(x)" for name in POINTWISE)
    yield from (f"u.{name}()" for name in UNIT)
    yield from (f"F.{name}" if "(" in name else f"F.{name}(x)" for name in ACTIVATIONS)
    yield from lines(EXACT)
    yield from (f"x.{name}" if "std_mean" not in name else "T.std_mean(x,0)" for name in REDUCE)
    for text in (ORDER, INDEX, COPIES, RANDOM, PRODUCTS, LOSSES):
        yield from lines(text)
    few = "exp() tanh() sigmoid() sum() sum(0) softmax(-1) max(1) mean(1) abs() sqrt() cumsum(1) relu()".split()
    for kind in "bh":
        yield from (f"{kind}.{name}" for name in few)
        yield from (f"{kind}{op}{kind}" for op in "+*/<")
        yield from (f"F.{name}({kind})" for name in ("gelu", "silu", "mish", "dropout", "logsigmoid"))


def operands(xp: ModuleType, side: int) -> dict[str, Any]:
    """The names of the expressions; in both libraries the same numbers."""
    xp.manual_seed(0)
    x, y, u, v = xp.randn(side, side), xp.randn(side, side), xp.rand(side, side), xp.rand(side, side)
    i, j = xp.randint(0, side, (side, side)), xp.randint(0, side, (side, side))
    p, s = xp.randperm(side), xp.randn(side)
    batch, channels = max(side * side // 1600, 1), 16
    m = x > 0.3
    found: dict[str, Any] = {
        "T": xp, "F": xp.nn.functional, "L": xp.linalg, "SIDE": side, "x": x, "y": y, "u": u, "v": v, "i": i, "j": j,
        "p": p, "s": s, "m": m, "row": xp.randn(side), "col": xp.randn(side, 1), "sv": s.sort()[0], "iv": i[0],
        "b": x.bfloat16(), "h": x.half(), "z": xp.complex(x, y), "sign": x.sign(), "lst": x.tolist(),
        "zero": xp.zeros(()), "c3": xp.randn(min(side, 100), 10, side // 10 * 10), "c3b": xp.randn(4, side, side),
        "c4": xp.randn(batch, channels, 10, 10), "w2": xp.randn(8, channels)}
    found["c3t"] = found["c3"].mT.contiguous()
    found["c3s"], found["b3"] = found["c3"] @ found["c3t"], found["c3"].bfloat16()
    return found


def makers(xp: ModuleType) -> dict[str, Any]:
    """Operands by shape, each made once per expression: eval of a line makes them, the timed part does not."""
    def a(*shape: int) -> Any:
        return xp.randn(*shape)

    def sp(*shape: int) -> Any:
        x = xp.randn(*shape, shape[-1])
        return x @ x.mT + shape[-1] * xp.eye(shape[-1])
    return {
        "T": xp, "F": xp.nn.functional, "L": xp.linalg, "a": a, "sp": sp,
        "sq": lambda *n: xp.randn(*n, n[-1]) + n[-1] * xp.eye(n[-1]),
        "ca": lambda *n: xp.complex(a(*n), a(*n)), "cl": lambda *n: a(*n).to(memory_format=xp.channels_last),
        "ids": lambda *n, hi: xp.randint(0, hi, n), "g": lambda *n: a(*n).requires_grad_(),
        "gcl": lambda *n: a(*n).to(memory_format=xp.channels_last).requires_grad_(), "gsp": lambda *n: sp(*n).requires_grad_()}


def with_operands_made(text: str, names: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`f(a(2,3))` becomes `f(_0)` with _0 in the names: the outermost calls of makers are evaluated here."""
    found = dict(names)

    class Make(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            calls = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            plain = isinstance(node.func, ast.Name) or (
                isinstance(node.func, ast.Attribute) and node.func.attr in ("bfloat16", "half", "double") and calls)
            if plain:
                name = f"_{len(found)}"
                found[name] = eval(ast.unparse(node), names)
                return ast.Name(name, ast.Load())
            return self.generic_visit(node)
    tree = ast.fix_missing_locations(Make().visit(ast.parse(text, mode="eval")))
    return ast.unparse(tree), found


def first(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) else result


def backward(text: str, names: dict[str, Any], xp: ModuleType, leaves: list[Any]) -> Callable[[], Any]:
    forward = eval(f"lambda: {text}", names)
    grad = xp.ones_like(first(forward()))
    return lambda: xp.autograd.grad(first(forward()), leaves, grad, allow_unused=True)


def optimizer_steps(xp: ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    for count, shape in ((50, (64, 64)), (4, (1000, 1000))):
        for text in OPTIMIZERS:
            name, _, rest = text.partition("(")
            made = [xp.randn(*shape).requires_grad_() for _ in range(count)]
            for one in made:
                one.grad = xp.randn(*shape)
            optimizer = eval(f"make(ps, lr=1e-3, {rest.rstrip(')')})", {"make": getattr(xp.optim, name), "ps": made})
            yield f"{text} step, {count} of {shape}", optimizer.step


def op_works(xp: ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    for side in SIDES:
        shared = operands(xp, side)
        for text in sized():
            yield f"{text}  [{side}]", eval(f"lambda: {text}", operands(xp, side) if "_(" in text else shared)
    for text in lines(FIXED):
        shown, names = with_operands_made(text, makers(xp))
        yield text, eval(f"lambda: {shown}", names)
    for side in SIDES:
        for text in lines(BACKWARD):
            names = operands(xp, side)
            names["x"].requires_grad_()
            yield f"backward {text}  [{side}]", backward(text, names, xp, [names["x"]])
    for text in lines(FIXED_BACKWARD):
        made = makers(xp)
        leaves: list[Any] = []
        for maker in ("g", "gcl", "gsp"):
            made[maker] = lambda *n, make=made[maker]: leaves.append(make(*n)) or leaves[-1]
        shown, names = with_operands_made(text, made)
        yield f"backward {text}", backward(shown, names, xp, leaves)
    yield from optimizer_steps(xp)

