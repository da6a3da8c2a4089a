"""torch.utils.data.datapipes.utils: files as streams, decoders of files, checks of functions."""
from mindtorch_v2.utils.data.datapipes.utils import common, decoder, snapshot
