"""torch.amp.GradScaler: scales the loss so that small float16 gradients do not become zero, and the gradients back."""
from __future__ import annotations

import enum
import warnings
from collections import defaultdict
from typing import Any

from mindtorch_v2 import _C, _named
from mindtorch_v2.amp.autocast_mode import _DTYPES, _has_npu


class OptState(enum.Enum):
    """What was done with an optimizer since the last update()."""
    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _full(value: float, dtype: str, device: Any) -> Any:
    return _C._op_named("full")((), value, dtype=_C._dtype_named(dtype), device=device)


class GradScaler:
    """Scales losses and gradients. A step with infinite or NaN gradients is left out and the scale made smaller; after
    growth_interval good steps it is made larger. Nothing waits for the device before step()."""

    def __init__(self, device: str = "npu", init_scale: float = 2.0**16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and (device not in _DTYPES or device == "npu" and not _has_npu()):
            warnings.warn(f"torch.{device}.amp.GradScaler is enabled, but {device.upper()} is not available.  "
                          "Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            assert growth_factor > 1.0, "The growth factor must be > 1.0."
            assert backoff_factor < 1.0, "The backoff factor must be < 1.0."
        self._init_scale, self._growth_factor = init_scale, growth_factor
        self._backoff_factor, self._growth_interval = backoff_factor, growth_interval
        self._init_growth_tracker = 0
        self._scale: Any = None                   # tensors on the device of the first loss
        self._growth_tracker: Any = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh)

    # ---- scaling ---------------------------------------------------------------------------------------------------
    def _lazy_init(self, device: Any) -> None:
        if self._scale is None:
            self._scale = _full(self._init_scale, "float32", device)
            self._growth_tracker = _full(self._init_growth_tracker, "int32", device)

    def _needed(self, name: str) -> Any:
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                                 "scaler.scale(loss or outputs) earlier in the iteration.")
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """A loss, or a container of them, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _C.TensorBase):
            self._lazy_init(outputs.device)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, (tuple, list)):
            return type(outputs)([self.scale(item) for item in outputs])
        if hasattr(outputs, "__iter__"):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        """Multiplies the gradients by inv_scale; {device: 1.0 if one of them is not finite}."""
        found: dict[Any, Any] = {}
        alike: dict[Any, list[Any]] = {}
        for grad in (p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            if not allow_fp16 and grad.dtype is _C._dtype_named("float16"):
                raise ValueError("Attempting to unscale FP16 gradients.")
            # detached: changed in place, past the history that create_graph gives
            alike.setdefault((grad.device, grad.dtype), []).append(grad.detach())
        for (device, _), grads in alike.items():
            if device not in found:
                found[device] = found_inf.to(device, copy=True)
            _C._op_named("_amp_foreach_non_finite_check_and_unscale_")(
                grads, found[device], inv_scale.to(device, non_blocking=True))
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divides an optimizer's gradients by the scale, so that they can be clipped before step()."""
        if not self._enabled:
            return
        self._needed("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inv_scale = self._scale.double().reciprocal().float() if self._device == "cpu" else self._scale.reciprocal()
        found_inf = _full(0.0, "float32", self._scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, False)
        state["stage"] = OptState.UNSCALED

    # ---- stepping --------------------------------------------------------------------------------------------------
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), with unscaled gradients, unless one of them is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._needed("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        found = state["found_inf_per_device"].values()
        assert found, "No inf checks were recorded for this optimizer."
        skip = sum(seen.item() for seen in found)     # the one place that waits for the device
        result = None if skip else optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Makes the scale smaller after a bad step, larger after many good ones; or sets it."""
        if not self._enabled:
            return
        scale = self._needed("update")
        if new_scale is not None:
            if isinstance(new_scale, _C.TensorBase) and (new_scale.numel() != 1 or new_scale.requires_grad):
                raise AssertionError("new_scale should be a float or a 1-element torch.npu.FloatTensor or "
                                     "torch.FloatTensor with requires_grad=False.")
            scale.fill_(new_scale) if isinstance(new_scale, (int, float)) else scale.copy_(new_scale.reshape(()))
        else:
            found = [seen.to(scale.device, non_blocking=True) for state in self._per_optimizer_states.values()
                     for seen in state["found_inf_per_device"].values()]
            assert found, "No inf checks were recorded prior to update."
            self._grow_or_back_off(sum(found[1:], found[0]))
        self._per_optimizer_states = defaultdict(_fresh)

    def _grow_or_back_off(self, bad: Any) -> None:
        """The scale after a step; torch.npu's scaler can keep it as it is."""
        _C._op_named("_amp_update_scale_")(self._scale, self._growth_tracker, bad, self._growth_factor,
                                           self._backoff_factor, self._growth_interval)

    # ---- settings and state ----------------------------------------------------------------------------------------
    def get_scale(self) -> float:
        """The scale now; waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item()

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict takes; empty where the scaler is off."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up where state_dict() was made."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance "
                               "of GradScaler.")
        self._init_scale, self._init_growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._per_optimizer_states:
            raise AssertionError("A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                                 "the end after scaler.update().")
        state = self.__dict__.copy()
        if self._enabled:
            state |= {"_init_scale": self.get_scale(), "_init_growth_tracker": self._get_growth_tracker()}
        return state | {"_scale": None, "_growth_tracker": None}

_named.complete(__name__)
