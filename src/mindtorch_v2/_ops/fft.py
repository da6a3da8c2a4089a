"""Rows of torch.fft, and the short-time transforms."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops import batching, forward
from mindtorch_v2._ops.decompose import real_dtype, word
from mindtorch_v2._ops.spectral import complex_dtype
from mindtorch_v2._ops.table import Spec, composite, functions, methods, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor

# ---- kernels: normalization is 0 (none), 1 (by sqrt(n)) or 2 (by n) ------------------------------
op("_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor",
   batch=batching.dims, forward=forward.linear, variants="function",
   rule=lambda self, dim, normalization, forward: (tuple(self.shape), self.dtype),
   grad={"self": lambda g, dim, normalization, forward: ops._fft_c2c(g, dim, normalization, not forward)})


def _with(shape: Any, dim: int, size: int) -> tuple[int, ...]:
    shape = list(shape)
    shape[dim] = size
    return tuple(shape)


def _points(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _r2c_rule(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Spec:
    last = dim[-1]
    _points(self.size(last))
    size = self.size(last) // 2 + 1 if onesided else self.size(last)
    return _with(self.shape, last, size), complex_dtype(self.dtype)


def _r2c_grad(g: Tensor, dim: list[int], normalization: int, onesided: bool, self_shape: tuple[int, ...]) -> Tensor:
    if onesided:
        g = _sized(g, dim[-1], self_shape[dim[-1]])
    return ops._fft_c2c(g, dim, normalization, False).real


op("_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor",
   batch=batching.dims, forward=forward.linear, rule=_r2c_rule, variants="function",
   grad={"self": lambda g, dim, normalization, onesided, self:
         _r2c_grad(g, dim, normalization, onesided, self.shape)})


def _c2r_grad(g: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    made = ops._fft_r2c(g, dim, normalization, True)
    last, twice = dim[-1], (last_dim_size - 1) // 2     # items that stand for their mirror image, too
    if twice <= 0:
        return made
    parts = made.split([1, twice, made.size(last) - 1 - twice], last)
    return ops.cat([parts[0], parts[1] * 2, parts[2]], last)


op("_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor",
   batch=batching.dims, forward=forward.linear, variants="function",
   rule=lambda self, dim, normalization, last_dim_size: (_with(self.shape, dim[-1], _points(last_dim_size)),
                                                         real_dtype(self.dtype)),
   grad={"self": lambda g, dim, normalization, last_dim_size: _c2r_grad(g, dim, normalization, last_dim_size)})


# ---- what all share ------------------------------------------------------------------------------
def _sized(x: Tensor, dim: int, size: int) -> Tensor:
    """x cut or padded with zeros to `size` along dim."""
    have = x.size(dim)
    if have == size:
        return x
    if have > size:
        return x.narrow(dim, 0, size)
    return ops.constant_pad_nd(x, [0] * (2 * (x.dim() - 1 - dim)) + [0, size - have])


def _mode(norm: str | None, forward: bool) -> int:
    if norm is None or norm == "backward":
        return 0 if forward else 2
    if norm == "forward":
        return 2 if forward else 0
    if norm == "ortho":
        return 1
    raise RuntimeError(f'Invalid normalization mode: "{norm}"')


def _floats(x: Tensor, complex: bool = False) -> Tensor:
    """x as a float (or complex) tensor that the transforms take."""
    if not x.is_floating_point() and not x.is_complex():
        x = x.to(_C.get_default_dtype())
    if x.dtype.itemsize == 2:
        raise RuntimeError(f"Unsupported dtype {word(x.dtype)}")
    return x.to(complex_dtype(x.dtype)) if complex else x


def _real(x: Tensor, name: str) -> Tensor:
    if x.is_complex():
        raise RuntimeError(f"{name} expects a real input tensor, but got {word(x.dtype)}")
    return _floats(x)


def _check_size(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _dim(x: Tensor, dim: int) -> int:
    if x.dim() == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap(dim, x.dim())


def _listed(x: int | tuple[int, ...]) -> list[int]:
    return [x] if isinstance(x, int) else list(x)


def _shape_and_dims(x: Tensor, s: Any, dim: Any) -> tuple[list[int], list[int]]:
    """The sizes and dims of a transform over several dims."""
    if dim is not None:
        dim = [wrap(d, x.dim()) for d in _listed(dim)]
        if len(set(dim)) != len(dim):
            raise RuntimeError("FFT dims must be unique")
    if s is not None:
        s = _listed(s)
        if dim is not None:
            if len(dim) != len(s):
                raise RuntimeError("When given, dim and shape arguments must have the same length")
        elif len(s) > x.dim():
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {x.dim()} dimensions.")
        else:
            dim = list(range(x.dim() - len(s), x.dim()))
        s = [x.size(d) if n == -1 else n for n, d in zip(s, dim)]
    else:
        dim = list(range(x.dim())) if dim is None else dim
        s = [x.size(d) for d in dim]
    for n in s:
        _check_size(n)
    return s, dim


def _resized(x: Tensor, s: Any, dim: Any) -> Tensor:
    for n, d in zip(s, dim):
        x = _sized(x, d, n)
    return x


def _c2c(x: Tensor, dim: list[int], norm: str | None, forward: bool) -> Tensor:
    """A complex transform, of a real or complex x."""
    if x.is_complex():
        return ops._fft_c2c(x, dim, _mode(norm, forward), forward)
    made = ops._fft_r2c(x, dim, _mode(norm, forward), False)
    return made if forward else made.conj()


# ---- one dim -------------------------------------------------------------------------------------
_ONE = "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor"


def _one(forward: bool) -> Callable[..., Any]:
    def body(self: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        x, dim = _floats(self), _dim(self, dim)
        return _c2c(_sized(x, dim, _check_size(x.size(dim) if n is None else n)), [dim], norm, forward)
    return body


def _to_half(name: str, forward: bool) -> Callable[..., Any]:
    def body(self: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        x, dim = _real(self, name), _dim(self, dim)
        x = _sized(x, dim, _check_size(x.size(dim) if n is None else n))
        made = ops._fft_r2c(x, [dim], _mode(norm, forward), True)
        return made if forward else made.conj()
    return body


def _from_half(forward: bool) -> Callable[..., Any]:
    def body(self: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        x, dim = _floats(self, True), _dim(self, dim)
        n = _check_size(2 * (x.size(dim) - 1) if n is None else n)
        x = _sized(x, dim, n // 2 + 1)
        return ops._fft_c2r(x.conj() if forward else x, [dim], _mode(norm, forward), n)
    return body


for _name, _body, _doc in (
    ("fft", _one(True), "The Fourier transform along a dim."),
    ("ifft", _one(False), "The inverse Fourier transform along a dim."),
    ("rfft", _to_half("rfft", True), "The Fourier transform of a real signal: its first half."),
    ("irfft", _from_half(False), "The real signal whose transform's first half is given."),
    ("hfft", _from_half(True), "The real transform of a Hermitian signal, the half of which is given."),
    ("ihfft", _to_half("ihfft", False), "The inverse of hfft: half of a Hermitian signal."),
):
    op(f"fft_{_name}{_ONE}", body=_body, variants="fft", autocast={"cpu": "float32"}, doc=_doc)


# ---- several dims --------------------------------------------------------------------------------
def _many(forward: bool) -> Callable[..., Any]:
    def body(self: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
        x = _floats(self, True)
        s, dim = _shape_and_dims(x, s, dim)
        return ops._fft_c2c(_resized(x, s, dim), dim, _mode(norm, forward), forward)
    return body


def _to_half_many(name: str, forward: bool) -> Callable[..., Any]:
    def body(self: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
        x = _real(self, name)
        s, dim = _shape_and_dims(x, s, dim)
        if not dim:
            raise RuntimeError(f"{name} must transform at least one axis")
        x, mode = _resized(x, s, dim), _mode(norm, forward)
        if forward:
            return ops._fft_r2c(x, dim, mode, True)
        made = ops._fft_r2c(x, dim[-1:], mode, True).conj()
        return ops._fft_c2c(made, dim[:-1], mode, False) if len(dim) > 1 else made
    return body


def _from_half_many(name: str, forward: bool) -> Callable[..., Any]:
    def body(self: Tensor, s: tuple[int, ...] | None, dim: Any, norm: str | None) -> Tensor:
        x = _floats(self, True)
        given = s is not None and _listed(s)[-1:] not in ([], [-1])
        sizes, dim = _shape_and_dims(x, s, dim)
        if not dim:
            raise RuntimeError(f"{name} must transform at least one axis")
        last = _check_size(sizes[-1] if given else 2 * (x.size(dim[-1]) - 1))
        x, mode = _resized(x, [*sizes[:-1], last // 2 + 1], dim), _mode(norm, forward)
        if not forward:
            return ops._fft_c2r(x, dim, mode, last)
        x = ops._fft_c2c(x, dim[:-1], mode, True) if len(dim) > 1 else x
        return ops._fft_c2r(x.conj(), dim[-1:], mode, last)
    return body


for _name, _make, _doc in (
    ("fft", lambda name: _many(True), "The Fourier transform over several dims."),
    ("ifft", lambda name: _many(False), "The inverse Fourier transform over several dims."),
    ("rfft", lambda name: _to_half_many(name, True), "The transform of a real signal over several dims."),
    ("irfft", lambda name: _from_half_many(name, False), "The inverse of rfftn."),
    ("hfft", lambda name: _from_half_many(name, True), "The real transform of a signal, Hermitian in the last dim."),
    ("ihfft", lambda name: _to_half_many(name, False), "The inverse of hfftn."),
):
    _cast = None if "h" in _name else {"cpu": "float32"}     # as torch, whose list lacks the Hermitian ones
    op(f"fft_{_name}2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",
       body=_make(_name + "n"), variants="fft", autocast=_cast, doc=_doc)
    op(f"fft_{_name}n(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",
       body=_make(_name + "n"), variants="fft", autocast=_cast, doc=_doc)


# ---- helpers of users ----------------------------------------------------------------------------
def _shift(up: int) -> Callable[..., Any]:
    def body(self: Tensor, dim: int | tuple[int, ...] | None) -> Tensor:
        dims = list(range(self.dim())) if dim is None else _listed(dim)
        return self.roll([(self.size(d) + up) // 2 for d in dims], dims) if dims else self.clone()
    return body


op("fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor", out=False, body=_shift(0), variants="fft",
   doc="Moves the zero frequency to the middle.")
op("fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor", out=False, body=_shift(1), variants="fft",
   doc="The inverse of fftshift.")

_OPTIONS = ("*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
            "bool? requires_grad=False")


def _step(length: float) -> float:
    """1 / length, as a float of C divides."""
    return 1.0 / length if length else math.copysign(math.inf, length)


@composite(f"fft_fftfreq(int n, float d=1.0, {_OPTIONS}) -> Tensor", variants="fft")
def _fftfreq(n: int, d: float, dtype: _C.dtype | None, layout: _C.layout | None, device: _C.device | None,
             pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """The frequencies of an fft of n samples d apart."""
    dtype = dtype or _C.get_default_dtype()
    steps = ops.cat([ops.arange((n + 1) // 2, device=device), ops.arange(-(n // 2), 0, device=device)])
    made = steps.to(dtype) * _step(n * d)
    return made._requires_grad_(True) if requires_grad else made


@composite(f"fft_rfftfreq(int n, float d=1.0, {_OPTIONS}) -> Tensor", variants="fft")
def _rfftfreq(n: int, d: float, dtype: _C.dtype | None, layout: _C.layout | None, device: _C.device | None,
              pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """The frequencies of an rfft of n samples d apart."""
    made = ops.arange(n // 2 + 1, dtype=dtype or _C.get_default_dtype(), device=device) * _step(n * d)
    return made._requires_grad_(True) if requires_grad else made


# ---- short time ----------------------------------------------------------------------------------
def _window(window: Tensor | None, win_length: int, n_fft: int, like: Tensor) -> Tensor:
    """The window, ones by default, centred in n_fft items."""
    if window is None:
        window = ops.ones((win_length,), dtype=real_dtype(like.dtype), device=like.device)
    left = (n_fft - win_length) // 2
    return ops.constant_pad_nd(window, [left, n_fft - win_length - left]) if win_length != n_fft else window


_TO_SUPPRESS = ("To suppress this warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, "
                "device=<device>)`.")


def _refuse(name: str, self: Tensor, text: Any) -> NoReturn:
    raise RuntimeError(f"{name}({_describe(self)}): {text}")


def _describe(x: Any) -> Any:
    return f"torch.{word(x.dtype)}Tensor{list(x.shape)}"


def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: Any = None, window: Tensor | None = None,
         center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
         return_complex: bool | None = None, align_to_window: Any = None) -> Tensor:
    """The Fourier transforms of windows that slide along a signal: (batch,) frequencies, frames."""
    if window is None:
        _config.warn_once("A window was not provided. A rectangular window will be applied,which is known to cause spectral "
                          "leakage. Other windows such as torch.hann_window or torch.hamming_window are recommended to "
                          f"reduce spectral leakage.{_TO_SUPPRESS}")
    hop, win = hop_length if hop_length is not None else n_fft // 4, win_length if win_length is not None else n_fft
    complex_in = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not complex_in:
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further "
                               "require that return_complex=True in a future PyTorch release.")
        return_complex = True
    elif not return_complex:
        _config.warn_once("stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex "
                          "tensors for all inputs, and return_complex=False will raise an error.\nNote: you can still call "
                          "torch.view_as_real on the complex output to recover the old return format.")
    if not input.is_floating_point() and not input.is_complex():
        _refuse("stft", input, "expected a tensor of floating point or complex values")
    if input.dim() not in (1, 2):
        _refuse("stft", input, "expected a 1D or 2D tensor")
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    x = input.unsqueeze(0) if input.dim() == 1 else input
    if center:
        x = ops.pad(x.unsqueeze(0), [n_fft // 2, n_fft // 2], pad_mode).squeeze(0)
    length = x.size(1)
    if not 0 < n_fft <= length:
        _refuse("stft", input, f"expected 0 < n_fft < {length}, but got n_fft={n_fft}")
    if hop <= 0:
        _refuse("stft", input, f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        _refuse("stft", input, f"expected 0 < win_length <= n_fft, but got win_length={win}")
    if window is not None and (window.dim() != 1 or window.size(0) != win):
        _refuse("stft", input, f"expected a 1D window tensor of size equal to win_length={win}, but got window with "
                               f"size {list(window.shape)}")
    onesided = not complex_in if onesided is None else onesided
    if onesided and complex_in:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    frames = x.unfold(1, n_fft, hop)
    if window is not None or win != n_fft:
        frames = frames * _window(window, win, n_fft, input)
    norm = "ortho" if normalized else None
    made = (ops.fft_rfft(frames, norm=norm) if onesided else ops.fft_fft(frames, norm=norm)).transpose(1, 2)
    made = made.squeeze(0) if input.dim() == 1 else made
    return made if return_complex else ops.view_as_real(made)


def istft(input: Tensor, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Tensor | None = None,
          center: bool = True, normalized: bool = False, onesided: Any = None, length: Any = None,
          return_complex: bool = False) -> Tensor:
    """The signal whose short-time transforms are nearest to these."""
    hop, win = hop_length if hop_length is not None else n_fft // 4, win_length if win_length is not None else n_fft
    if window is None:
        _config.warn_once("A window was not provided. A rectangular window will be applied.Please provide the same window used by "
                          f"stft to make the inversion lossless.{_TO_SUPPRESS}")
    if not input.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if input.numel() == 0:
        _refuse("istft", input, "input tensor cannot be empty.")
    if input.dim() not in (2, 3):
        _refuse("istft", input, f"expected a tensor with 3 or 4 dimensions, but got {input.dim() + 1}")
    onesided = input.size(-2) != n_fft if onesided is None else onesided
    expected = n_fft // 2 + 1 if onesided else n_fft
    if input.size(-2) != expected:
        _refuse("istft", input, f"expected the frequency dimension (3rd to the last) of the input tensor to match "
                                f"n_fft{' / 2 + 1' if onesided else ''} when onesided={onesided}, but got "
                                f"{input.size(-2)}")
    if not 0 < hop <= win:
        _refuse("istft", input, "expected 0 < hop_length <= win_length")
    if not 0 < win <= n_fft:
        _refuse("istft", input, "expected 0 < win_length <= n_fft")
    if window is not None and (window.dim() != 1 or window.size(0) != win):
        _refuse("istft", input, "Invalid window shape. window has to be 1D and length of `win_length`")
    if return_complex and onesided:
        _refuse("istft", input, "cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window.is_complex():
        _refuse("istft", input, "Complex windows are incompatible with return_complex=False")
    x = (input if input.dim() == 3 else input.unsqueeze(0)).transpose(1, 2)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = ops.fft_ifft(x, norm=norm)
    else:
        frames = ops.fft_irfft(x if onesided else x.narrow(-1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    shape = _window(window, win, n_fft, input)
    total = n_fft + hop * (x.size(1) - 1)
    signal = _overlap(frames * shape, total, n_fft, hop)
    weight = _overlap((shape * shape).expand((1, x.size(1), n_fft)), total, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    signal, weight = (t.narrow(1, start, min(end, total) - start) for t in (signal, weight))
    if weight._readable and bool(weight.abs().min() < 1e-11):
        _refuse("istft", input, "window overlap add min: 1")
    signal = signal / weight
    if end > total:
        signal = ops.constant_pad_nd(signal, [0, end - total])
    return signal.squeeze(0) if input.dim() == 2 else signal


def _overlap(frames: Tensor, total: int, n_fft: int, hop: int) -> Tensor:
    """The sum of frames `hop` apart."""
    return ops.unfold_backward(frames, [frames.size(0), total], 1, n_fft, hop)


for _function in (stft, istft):
    functions[_function.__name__] = methods[_function.__name__] = _function
