# What Python asks and sets of recording: modes of a thread, versions of tensors, histories that custom functions give.

def _is_grad_enabled():
    return modes().grad or modes().inference and modes().grad_wanted


def _set_grad_enabled(bint enabled):
    """Inference mode records nothing, whatever else is asked for."""
    modes().grad_wanted = enabled
    modes().grad = enabled and not modes().inference


def _is_inference_mode():
    return modes().inference


def _set_inference_mode(bint enabled):
    modes().inference = enabled


def _set_anomaly(bint enabled, bint check_nan=True):
    global anomaly, anomaly_nan
    anomaly, anomaly_nan = enabled, check_nan


def _is_anomaly():
    return anomaly


def _is_anomaly_nan():
    return anomaly_nan


def _set_function_off(bint off):
    previous = modes().function_off
    modes().function_off = off
    return previous


def _is_function_off():
    return modes().function_off


def _bump(TensorBase t):
    bump_version(t)


def _set_version(TensorBase t, uint32_t version):
    """Sets how often a tensor, with all that share its memory, was changed."""
    if t.shared_version != NULL:
        t.shared_version.value = version
    else:
        t.version = version


def _give_history(TensorBase t, Node node, int nr):
    """t becomes the output number nr of node, which has one."""
    if not 0 <= nr < node.noutputs:
        raise IndexError(f"{node.name()} has {node.noutputs} outputs, got number {nr}")
    t.output_nr, t.requires = nr, True
    t.fn = node
