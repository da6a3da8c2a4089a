"""Programs of ecosystem.py for the packages that hold models and train them; the rest is in ecosystem_uses.py."""
from __future__ import annotations

TINY_LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = settle(LlamaForCausalLM(config))
"""
MODEL_USES: dict[str, tuple[str, str]] = {
    "transformers": ("transformers", TINY_LLAMA + """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
bert = settle(BertForSequenceClassification(BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))).train()
optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-3)
out = []
for step in range(3):
    loss = bert(torch.arange(20, device=device).reshape(2, 10), labels=torch.tensor([0, 1], device=device)).loss
    loss.backward(); optimizer.step(); optimizer.zero_grad(); out.append(loss)
ids = torch.arange(3, 11, device=device)[None]
out.append(model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0))
out.append(model.generate(ids, max_new_tokens=6, do_sample=False, num_beams=2, pad_token_id=0))
model.save_pretrained(folder / 'llama')
again = LlamaForCausalLM.from_pretrained(folder / 'llama').to(device)
out.append(again(ids, labels=ids).loss)
data = [{'input_ids': torch.arange(i, i + 8), 'labels': torch.arange(i, i + 8)} for i in range(3, 11)]
arguments = TrainingArguments(str(folder / 'run'), max_steps=3, per_device_train_batch_size=4, report_to=[], disable_tqdm=True,
                              use_cpu=device == 'cpu', save_strategy='no', logging_steps=1)
trainer = Trainer(model=again.train(), args=arguments, train_dataset=data)
trainer.train()
assert next(again.parameters()).device.type == device
out += [row['loss'] for row in trainer.state.log_history if 'loss' in row]
"""),
    "accelerate": ("accelerate", """
from accelerate import Accelerator
accelerator = Accelerator(cpu=device == 'cpu')
assert accelerator.device.type == device
model = settle(torch.nn.Linear(4, 2))
loader = torch.utils.data.DataLoader(torch.linspace(0, 1, 24).reshape(6, 4), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
out = []
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(batch).pow(2).mean(); accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0); optimizer.step(); optimizer.zero_grad(); out.append(loss)
accelerator.save_state(str(folder / 'state')); accelerator.load_state(str(folder / 'state'))
out += list(accelerator.unwrap_model(model).parameters())
"""),
    "peft": ("peft", TINY_LLAMA + """
from peft import LoraConfig, PeftModel, get_peft_model
model = settle(get_peft_model(model, LoraConfig(target_modules=['q_proj', 'v_proj'], r=2, task_type='CAUSAL_LM')))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
ids = torch.arange(3, 11, device=device)[None]
out = []
for _ in range(3):
    loss = model(ids, labels=ids).loss; loss.backward(); optimizer.step(); optimizer.zero_grad(); out.append(loss)
model.save_pretrained(folder / 'lora')
again = PeftModel.from_pretrained(settle(LlamaForCausalLM(config)), str(folder / 'lora'))
out += [again(ids).logits[0, -1], model.merge_and_unload()(ids).logits[0, -1]]
"""),
    "trl": ("trl", TINY_LLAMA + """
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
words = {word: i for i, word in enumerate('<pad> <s> </s> <unk> a b c d e f g h i j'.split())}
base = Tokenizer(models.WordLevel(words, unk_token='<unk>')); base.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, pad_token='<pad>', bos_token='<s>', eos_token='</s>', unk_token='<unk>')
data = Dataset.from_dict({'text': ['a b c d e f', 'g h i j a b', 'c c d d', 'e f g h'] * 2})
arguments = SFTConfig(str(folder / 'sft'), max_steps=3, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, bf16=False,
                      use_cpu=device == 'cpu', save_strategy='no', logging_steps=1, max_length=16, gradient_checkpointing=False)
trainer = SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)
trainer.train()
out = [row['loss'] for row in trainer.state.log_history if 'loss' in row]
"""),
    "sentence_transformers": ("sentence-transformers", """
from sentence_transformers import SentenceTransformer, losses, models, util
from tokenizers import Tokenizer, models as words, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
settle(BertModel(config)).cpu().save_pretrained(folder / 'bert')
base = Tokenizer(words.WordLevel({w: i for i, w in enumerate('[PAD] [UNK] a b c d e'.split())}, unk_token='[UNK]'))
base.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=base, pad_token='[PAD]', unk_token='[UNK]').save_pretrained(folder / 'bert')
layer = models.Transformer(str(folder / 'bert'), max_seq_length=16)
model = SentenceTransformer(modules=[layer, models.Pooling(16)], device=device)
found = model.encode(['a b c', 'd e', 'c c a'], convert_to_tensor=True)
model.save(str(folder / 'sentence')); again = SentenceTransformer(str(folder / 'sentence'), device=device)
assert found.device.type == device
out = [found, util.cos_sim(found, found), again.encode(['a b c'], convert_to_tensor=True)]
"""),
    "diffusers": ("diffusers", """
from diffusers import AutoencoderKL, DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel
s = DDPMScheduler(num_train_timesteps=10)
unet = settle(UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
                          norm_num_groups=4, down_block_types=('DownBlock2D', 'AttnDownBlock2D'),
                          up_block_types=('AttnUpBlock2D', 'UpBlock2D')))
x = torch.linspace(-1, 1, 128).reshape(2, 1, 8, 8).to(device)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4); out = []
for step in range(2):
    noisy = s.add_noise(x, x.flip(-1), torch.tensor([5, 2], device=device))
    loss = (unet(noisy, torch.tensor([5, 2], device=device)).sample - x).pow(2).mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad(); out.append(loss)
unet.save_pretrained(folder / 'unet'); again = UNet2DModel.from_pretrained(folder / 'unet').to(device)
ddim = DDIMScheduler(num_train_timesteps=10); ddim.set_timesteps(3)
for t in ddim.timesteps:
    with torch.no_grad():
        x = ddim.step(again(x, t).sample, t, x).prev_sample
vae = settle(AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2)).eval()
out += [x, vae(torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8).to(device)).sample]
"""),
    "timm": ("timm", """
import timm
from timm.optim import create_optimizer_v2
out = []
x = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32).to(device)
for name, more in (('resnet10t', {}), ('vit_tiny_patch16_224', {'img_size': 32, 'depth': 2}), ('test_convnext', {}),
                   ('test_efficientnet', {})):
    model = settle(timm.create_model(name, pretrained=False, num_classes=5, **more)).eval()
    optimizer = create_optimizer_v2(model, opt='adamw', lr=1e-3)
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 4], device=device))
        loss.backward(); optimizer.step(); optimizer.zero_grad(); out.append(loss)
torch.save(model.state_dict(), folder / 'm.pt')
again = timm.create_model('test_efficientnet', checkpoint_path=str(folder / 'm.pt'), num_classes=5).to(device).eval()
out.append(again(x))
"""),
    "lightning": ("lightning", """
import lightning
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__(); self.layer = settle(torch.nn.Linear(4, 2)); self.seen = []
    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log('loss', loss); self.seen.append(loss.item()); return loss
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]
data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 32).reshape(8, 4), torch.tensor([0, 1] * 4))
net = Net()
trainer = lightning.Trainer(max_epochs=2, accelerator='cpu', logger=False, enable_progress_bar=False, default_root_dir=str(folder),
                            enable_model_summary=False)
trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=2))
trainer.save_checkpoint(folder / 'net.ckpt'); again = Net.load_from_checkpoint(folder / 'net.ckpt')
out = [net.seen, again.layer.weight]
"""),
    "torchvision": ("torchvision<0.29", """
from torchvision.models import mobilenet_v3_small, resnet18
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import v2
from torchvision import tv_tensors
from torchvision.utils import make_grid
images = torch.linspace(0, 1, 2 * 3 * 40 * 40).reshape(2, 3, 40, 40).to(device)
x = v2.Compose([v2.Resize(36), v2.CenterCrop(32), v2.Normalize([0.5] * 3, [0.2] * 3)])(images)
out = []
for make in (resnet18, mobilenet_v3_small):
    model = settle(make(num_classes=5)).eval(); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 4], device=device))
        loss.backward(); optimizer.step(); optimizer.zero_grad(); out.append(loss)
features = create_feature_extractor(settle(resnet18(num_classes=5)).eval(), {'layer1': 'a', 'flatten': 'b'})(x)
boxes = tv_tensors.BoundingBoxes([[1, 2, 10, 12]], format='XYXY', canvas_size=(40, 40), device=device)
out += [features['a'], features['b'], v2.functional.horizontal_flip(boxes).float(), make_grid(images)]
"""),
    "kornia": ("kornia", """
import kornia
x = torch.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).to(device)
turn = kornia.geometry.get_rotation_matrix2d(torch.tensor([[4.0, 4.0]] * 2), torch.tensor([30.0, 60.0]), torch.ones(2, 2)).to(device)
out = [kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)), kornia.color.rgb_to_hsv(x), kornia.filters.sobel(x),
       kornia.geometry.warp_affine(x, turn, (8, 8)), kornia.enhance.adjust_contrast(x, 0.5),
       kornia.losses.ssim_loss(x, x.flip(-1), 5)]
"""),
    "monai": ("monai", """
from monai.inferers import sliding_window_inference
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, NormalizeIntensity, Resize
model = settle(UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1)).eval()
x = Compose([Resize((16, 16)), NormalizeIntensity()])(torch.linspace(0, 1, 144).reshape(1, 12, 12)).as_tensor()[None].to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3); out = []
for _ in range(2):
    loss = DiceLoss(to_onehot_y=True, softmax=True)(model(x), (x > 0).long()); loss.backward(); optimizer.step()
    optimizer.zero_grad(); out.append(loss)
out.append(sliding_window_inference(x, (8, 8), 1, model))
"""),
    "segmentation_models_pytorch": ("segmentation-models-pytorch", """
import segmentation_models_pytorch as smp
model = settle(smp.Unet('resnet18', encoder_weights=None, classes=2)).eval()
x = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01); out = []
for _ in range(2):
    loss = smp.losses.DiceLoss('multiclass')(model(x), (x[:, 0] > 0).long()); loss.backward(); optimizer.step()
    optimizer.zero_grad(); out.append(loss)
tp, fp, fn, tn = smp.metrics.get_stats(model(x).argmax(1), (x[:, 0] > 0).long(), mode='multiclass', num_classes=2)
out.append(smp.metrics.iou_score(tp, fp, fn, tn, reduction='micro'))
"""),
    "x_transformers": ("x-transformers", """
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
model = settle(TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2, rotary_pos_emb=True)))
wrapped = AutoregressiveWrapper(model)
loss = wrapped(torch.arange(8, device=device)[None]); loss.backward()
out = [loss, model.eval()(torch.arange(8, device=device)[None]),
       wrapped.generate(torch.arange(3, device=device)[None], 5, temperature=0.0)]
"""),
    "vector_quantize_pytorch": ("vector-quantize-pytorch", """
from vector_quantize_pytorch import FSQ, LFQ, VectorQuantize
x = torch.linspace(-1, 1, 12).reshape(1, 4, 3).to(device)
quantizer = settle(VectorQuantize(dim=3, codebook_size=8)).eval()
found = quantizer(x)
out = [*FSQ([8, 5, 5]).to(device)(x), found[0], found[1]]
"""),
}
