"""torch.utils.data: datasets, samplers and the loader that makes batches of them."""
from mindtorch_v2.utils.data import _utils, datapipes, graph, graph_settings
from mindtorch_v2.utils.data._utils.collate import default_collate, default_convert
from mindtorch_v2.utils.data._utils.worker import get_worker_info
from mindtorch_v2.utils.data.dataloader import DataLoader, _DatasetKind  # noqa: F401
from mindtorch_v2.utils.data.datapipes._decorator import (
    argument_validation,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
    runtime_validation,
    runtime_validation_disabled,
)
from mindtorch_v2.utils.data.datapipes.datapipe import DataChunk, DFIterDataPipe, IterDataPipe, MapDataPipe
from mindtorch_v2.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from mindtorch_v2.utils.data.distributed import DistributedSampler
from mindtorch_v2.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader", "Dataset",
           "DistributedSampler", "IterDataPipe", "IterableDataset", "MapDataPipe", "RandomSampler", "Sampler",
           "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
           "_DatasetKind", "argument_validation", "default_collate", "default_convert", "functional_datapipe",
           "get_worker_info", "guaranteed_datapipes_determinism", "non_deterministic", "random_split", "runtime_validation",
           "runtime_validation_disabled"]
