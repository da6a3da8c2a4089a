"""torch.utils.data's inside: datapipes, fetchers, collate functions and seeds of workers; also run under torch."""
from __future__ import annotations

import importlib

import numpy as np
import pytest
from twin import error, twin


def part(t, name):
    return importlib.import_module(f"{t.__name__}.utils.data.{name}")


@twin
def test_chained_streams(t):
    it = part(t, "datapipes.iter")
    w, v = it.IterableWrapper(range(10)), it.IterableWrapper(range(10))
    first, second = it.IterableWrapper(range(10)).fork(2)
    even, odd = it.IterableWrapper(range(10)).demux(2, lambda x: x % 2)
    return (list(w.map(lambda x: x + 1).filter(lambda x: x % 2 == 0).batch(2)), list(w.batch(3, drop_last=True).unbatch()),
            [list(pair) for pair in w.zip(v)], list(first), list(second), list(even), list(odd), list(w.concat(v))[8:12],
            list(w.mux(it.IterableWrapper([5, 6]))), len(w.batch(3)), list(w.groupby(lambda x: x % 3)),
            error(lambda: w.batch(0)), error(lambda: w.nothing), error(lambda: len(w.filter(bool))))


@twin
def test_columns_batches_and_shards(t):
    it = part(t, "datapipes.iter")
    rows = it.IterableWrapper([(1, 2), (3, 4)])
    w = it.IterableWrapper(range(7)).sharding_filter()
    w.apply_sharding(3, 1)
    shuffled = it.IterableWrapper(range(20)).shuffle().set_seed(5)
    return (list(rows.map(lambda x: -x, input_col=0)), list(rows.map(lambda x, y: x + y, input_col=[0, 1], output_col=-1)),
            list(w), len(w), list(shuffled), list(it.IterableWrapper([[1, 2], [3, 4]]).collate()),
            list(it.IterableWrapper([1, 2]).shuffle().set_shuffle(False)))


@twin
def test_pipes_by_index(t):
    mp = part(t, "datapipes.map")
    w = mp.SequenceWrapper([3, 1, 2])
    return (w.map(lambda x: x * 2)[1], [w.batch(2)[i] for i in range(2)], len(w.concat(w)), w.concat(w)[4], list(w.zip(w)[0]),
            list(w.shuffle().set_seed(1)), error(lambda: w.batch(2)[5]))


@twin
def test_a_class_of_pipes_becomes_a_method(t):
    name = f"twice_{t.__name__}"

    @t.utils.data.functional_datapipe(name)
    class Twice(t.utils.data.IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            for item in self.source:
                yield item
                yield item
    pipe = getattr(part(t, "datapipes.iter").IterableWrapper([1, 2]), name)()
    return list(pipe), error(lambda: t.utils.data.functional_datapipe(name)(Twice))


@pytest.mark.parametrize("seed", [0, 5, 2 ** 40 + 7, 2 ** 63 - 1])
@twin
def test_seeds_of_workers(t, seed):
    return [part(t, "_utils.worker")._generate_state(seed, worker) for worker in range(3)]


@twin
def test_the_inside_of_a_loader(t):
    loaders, fetch, collate = part(t, "dataloader"), part(t, "_utils.fetch"), part(t, "_utils.collate")
    loader = t.utils.data.DataLoader([1.0, 2.0, 3.0], batch_size=2)
    mapped = fetch._MapDatasetFetcher([10, 20, 30], True, sum, False)
    stream = fetch._IterableDatasetFetcher(range(3), True, list, True)
    array = np.ones(2, dtype=np.float32)
    return (isinstance(iter(loader), loaders._BaseDataLoaderIter), loader._dataset_kind == loaders._DatasetKind.Map,
            loader._auto_collation, mapped.fetch([0, 2]), stream.fetch([0, 0]), error(lambda: stream.fetch([0, 0])),
            collate.default_collate([{"a": 1, "b": array}, {"a": 2, "b": array}]), collate.collate_tensor_fn([t.ones(2)] * 2),
            collate.collate([1, 2], collate_fn_map={int: lambda batch, collate_fn_map=None: sum(batch)}),
            collate.np_str_obj_array_pattern.search("<U3") is not None, error(lambda: collate.default_collate([object()])),
            part(t, "_utils.pin_memory").pin_memory("text"))


@twin
def test_settings_of_all_pipes_of_a_graph(t):
    it, graph, settings = (part(t, name) for name in ("datapipes.iter", "graph", "graph_settings"))
    shuffler = importlib.import_module(f"{it.__name__}.combinatorics").ShufflerIterDataPipe
    pipe = it.IterableWrapper(range(10)).shuffle().sharding_filter()
    pipes = settings.get_all_graph_pipes(graph.traverse_dps(pipe))
    settings.apply_sharding(settings.apply_shuffle_settings(pipe, False), 3, 1)
    given = list(pipe)
    settings.apply_random_seed(settings.apply_shuffle_settings(pipe, True), t.Generator().manual_seed(4))
    appended = settings.apply_shuffle_settings(it.IterableWrapper(range(5)), True)
    return (len(pipes), sum(isinstance(p, shuffler) for p in pipes), given, list(pipe), isinstance(appended, shuffler),
            appended._enabled, settings.apply_shuffle_settings(pipe) is pipe, len(graph.traverse(pipe)))
