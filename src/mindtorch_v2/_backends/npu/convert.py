"""Copies between devices: cpu to npu, npu to cpu, npu to another npu. Copies within one device are an op (copy_)."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn, pinned, runtime, streams
from mindtorch_v2._backends.npu.errors import check

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3   # aclrtMemcpyKind


def copy(dst: Any, src: Any, non_blocking: bool) -> None:
    """dst's items become src's, cast and broadcast; at least one of them is on an npu, and not both on the same."""
    if dst.numel() == 0:
        return
    if src.shape != dst.shape:
        src = src.expand(dst.shape)
    if dst.is_cpu:
        _to_host(dst, src, non_blocking)
    elif src.is_cpu:
        _to_device(dst, src, non_blocking)
    else:
        _between(dst, src)


def _to_device(dst: Any, src: Any, non_blocking: bool) -> None:
    if not dst.is_contiguous():
        staged = _empty(dst, dst.dtype, dst.device)
        _to_device(staged, src, non_blocking)
        dst.copy_(staged)
        return
    given, src = src, src.to(dst.dtype).contiguous()
    index = dst.device.index
    stream = streams.current_stream_handle(index)
    alone = non_blocking and src is given and _left_to_itself(src, index, stream)
    if alone:
        _enqueue((dst, src), HOST_TO_DEVICE, stream)
    else:
        with streams.op_waits("copy from cpu to npu"):    # it may refuse: not once the copy has begun to write
            _copy_now((dst, src), HOST_TO_DEVICE, index, stream)
    aclnn.finish(index)


def _to_host(dst: Any, src: Any, non_blocking: bool) -> None:
    src = src.contiguous()
    if dst.dtype != src.dtype or not dst.is_contiguous():
        staged = _empty(src, src.dtype, "cpu")
        _to_host(staged, src, False)
        dst.copy_(staged)
        return
    index = src.device.index
    owner, stream = runtime.get_runtime(index), streams.current_stream_handle(index)
    alone = non_blocking and _left_to_itself(dst, index, stream)
    if alone:
        _enqueue((dst, src), DEVICE_TO_HOST, stream)
        aclnn.finish(index)
        return
    with streams.op_waits("copy from npu to cpu"):
        owner.synchronize()                       # a test that replaces it sees every read; the copy waits for its stream too
        _copy_now((dst, src), DEVICE_TO_HOST, index, stream)


def _between(dst: Any, src: Any) -> None:
    """Between two npus, through the host where they do not see one another."""
    if not can_access(src.device.index, dst.device.index):
        dst.copy_(src.cpu())
        return
    src = src.to(dst.dtype).contiguous()
    target = dst if dst.is_contiguous() else _empty(dst, dst.dtype, dst.device)
    for tensor in (dst, src):                     # the copy below waits for no stream
        stream = streams.current_stream_handle(tensor.device.index)
        streams.wait(tensor.device.index, stream, "copy between npus")
    to, of = _spans(target, src)
    code = runtime.acl.rt.memcpy(to.address, to.nbytes, of.address, of.nbytes, DEVICE_TO_DEVICE)
    check(code, "aclrtMemcpy: copy between npus")
    if target is not dst:
        dst.copy_(target)
    aclnn.finish(dst.device.index)


_peers: set[tuple[int, int]] = set()


def can_access(source: int, target: int) -> bool:
    """Whether copies from one npu to another need no host; opens the way at the first use."""
    if (source, target) in _peers:
        return True
    runtime.bind_thread(source)
    can, code = runtime.acl.rt.device_can_access_peer(source, target)
    check(code, "aclrtDeviceCanAccessPeer")
    if not can:
        return False
    for own, other in ((source, target), (target, source)):
        runtime.bind_thread(own)
        check(runtime.acl.rt.device_enable_peer_access(other, 0), "aclrtDeviceEnablePeerAccess")
    _peers.update({(source, target), (target, source)})
    return True


def _empty(like: Any, dtype: Any, device: Any) -> Any:
    return like.new_empty(like.shape, dtype=dtype, device=device)


_NAMES = {HOST_TO_DEVICE: "copy from cpu to npu", DEVICE_TO_HOST: "copy from npu to cpu"}


def _enqueue(tensors: tuple[Any, Any], kind: int, stream: int) -> None:
    """A copy of pinned memory on a stream of a device, after what was queued there."""
    to, of = _spans(*tensors)
    code = runtime.acl.rt.memcpy_async(to.address, to.nbytes, of.address, of.nbytes, kind, stream)
    check(code, "aclrtMemcpyAsync: " + _NAMES[kind])


def _copy_now(tensors: tuple[Any, Any], kind: int, index: int, stream: int) -> None:
    """A copy that is done when this returns. CANN leaves open what an asynchronous copy of memory that is not pinned does, and
    this one waits for no stream: the device's memory may have another user before, in the order of the stream."""
    to, of = _spans(*tensors)                     # they hold the memory until the copy was made
    streams.wait(index, stream, _NAMES[kind])
    check(runtime.acl.rt.memcpy(to.address, to.nbytes, of.address, of.nbytes, kind), "aclrtMemcpy: " + _NAMES[kind])


def _spans(dst: Any, src: Any) -> tuple[Any, Any]:
    """Where both are; refused where a storage was made too small for its tensor."""
    to, of = _C.DenseSpan(dst), _C.DenseSpan(src)
    if to.nbytes != of.nbytes:
        raise RuntimeError(f"cannot copy {of.nbytes} bytes to {to.nbytes}")
    return to, of


def _left_to_itself(host: Any, index: int, stream: int) -> bool:
    """Whether a copy on a stream needs no waiting: from then on pinned memory is not reused before it is done."""
    return pinned.host.record(host.untyped_storage().data_ptr(), index, stream)


runtime.on_close(lambda device_id: _peers.clear())   # what was opened is closed with the device
