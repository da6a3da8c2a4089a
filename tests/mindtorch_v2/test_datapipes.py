"""torch.utils.data's inside: datapipes, fetchers, collate functions and seeds of workers; also run under torch."""
from __future__ import annotations

import importlib
import warnings

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


# ---- one pass at a time, checks, warnings, errors ------------------------------------------------------------------------------
HEAD = """
import io, pickle, re
it, mp = part(t, "datapipes.iter"), part(t, "datapipes.map")
common, decoder, snapshot = (part(t, "datapipes.utils." + name) for name in ("common", "decoder", "snapshot"))
data = t.utils.data
W, Base = it.IterableWrapper, data.IterDataPipe
parity = parity_of
class Itself(Base):
    def __init__(s): s.n = 0
    def __iter__(s): s.n = 0; return s
    def __next__(s):
        if s.n >= 3: raise StopIteration
        s.n += 1; return s.n
class Bad(Base):
    def __iter__(s):
        yield 1
        raise KeyError("k")
def after(*passes):
    result = None
    for each in passes: result = next(each)
    return result
def restored(n):
    p = W(range(10)); snapshot._simple_graph_snapshot_restoration(p, n); return p
def guarded(make):
    with data.guaranteed_datapipes_determinism(): return make()
"""
PIPES = """
(lambda p: after(iter(p), iter(p)))(W([1, 2]))
(lambda p: (lambda a, b: [next(a), next(b), next(a)])(iter(p), iter(p)))(W([1, 2]))
(lambda p: (lambda a: [next(a), next(iter(p)), next(a)])(iter(p)))(Itself())
(lambda a: (type(a).__name__, list(a)))(iter(Itself()))
list(Bad())
(lambda p: (next(iter(p)), p._valid_iterator_id, p._number_of_samples_yielded, p._snapshot_state.name))(W([1, 2]))
list(restored(3))
restored(30)
(lambda p: (lambda a, b: [next(a), next(b), next(iter(p[0])), next(a)])(iter(p[0]), iter(p[1])))(W(range(5)).fork(2))
(lambda p: (list(p[0]), list(p[1]), list(p[0]), list(p[1]), len(p[0])))(W(range(5)).fork(2))
list(W(range(5)).fork(2, buffer_size=2)[0])
list(W([1, 2]).fork(2, buffer_size=-1)[0])
[x is y for copy in (None, "shallow", "deep") for x, y in (lambda p: p[0].zip(p[1]))(W([[1]]).fork(2, copy=copy))]
W([1]).fork(2, copy="x")
W([1]).fork(0)
list(W(range(15)).demux(2, parity, buffer_size=2)[0])
list(W(range(5)).demux(2, parity, buffer_size=2)[0])
list(W(range(3)).demux(2, nothing)[0])
list(W(range(3)).demux(2, nothing, drop_none=True)[0])
len(W([1]).demux(2, lambda x: 0))
list(W([[1]]).unbatch(-2))
list(W([1]).unbatch())
len(W([1]).groupby(bool))
W([1]).groupby(bool, group_size=20, buffer_size=10)
W([1]).groupby(bool, guaranteed_group_size=3)
it.Zipper(W([1]), [1])
it.Concater([1])
it.Concater()
W([1]).shuffle(buffer_size=0)
W([1]).map(3)
W([1]).map(lambda x: x)
list(W([1]).filter(lambda x: 3))
it.Mapper(W([1]), lambda a, b: 1)
W([(1, 2)]).map(str, input_col=0, output_col=[1, 2])
list(W([(1, 2, 3)]).map(sum_of, input_col=[0, 1]))
W([1]).nothing
[(x.__name__, x.__qualname__, x.__module__.partition(".")[2]) for x in (W, it.Mapper, it.Forker, mp.Mapper, it.FileLister)]
[common.validate_input_col(print, 0), common.validate_input_col(lambda a, b=1: 1, [0])]
common.validate_input_col(lambda a: 1, [0, 1])
common.validate_input_col(lambda a, b: 1, 0)
common.validate_input_col(lambda *, k: 1, 0)
[common.match_masks("a.txt", mask) for mask in ("", "*.py", ["*.py", "*.txt"])]
(lambda s: (re.sub("0x.*", "", repr(s)), s.read().decode(), s.autoclose(), s.closed))(common.StreamWrapper(io.BytesIO(b"abc"), name="x"))
common.StreamWrapper(io.BytesIO(b"abc")).nope
list(it.FileLister(folder, "*.txt"))
[(name[-5:], piece.decode()) for name, piece in it.FileOpener(W([folder + "/a.txt"]), mode="rb").read_from_stream(chunk=3)]
it.FileOpener(W([1]), mode="q")
list(it.StreamReader(W([1])))
list(it.RoutedDecoder(W([("a.txt", io.BytesIO(b"hi")), ("b.json", io.BytesIO(b"[1]")), ("c.cls", io.BytesIO(b"3"))]), decoder.basichandlers))
list(pickle.loads(pickle.dumps(W([3, 1]).map(str).batch(2))))
(lambda p: list(pickle.loads(pickle.dumps(p[0].zip(p[1])))))(W(range(4)).fork(2))
W([1]).sharding_filter().apply_sharding(2, 2)
(lambda p: [p.apply_sharding(2, 1, it.sharding.SHARDING_PRIORITIES.DISTRIBUTED), p.apply_sharding(3, 0, 3), list(p), len(p)])(W(range(6)).sharding_filter())
(lambda p: [p.apply_sharding(2, 1, 2), p.apply_sharding(2, 1, 1)])(W(range(6)).sharding_filter())
guarded(lambda: data.non_deterministic(W)([1]))
data.non_deterministic(3)
data.non_deterministic(int)
list(data.DataLoader(W(range(6)).sharding_filter(), batch_size=3, num_workers=2))
""".strip().splitlines()


def parity_of(x):
    return x % 2


def nothing(x):
    return None


def sum_of(a, b):
    return a + b


@pytest.mark.parametrize("line", PIPES)
@twin
def test_pipes_as_lines(t, line, tmp_path):
    (tmp_path / "a.txt").write_text("abcde")
    (tmp_path / "b.py").write_text("")
    scope = {"t": t, "part": part, "parity_of": parity_of, "nothing": nothing, "sum_of": sum_of, "folder": str(tmp_path)}
    exec(HEAD, scope)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = eval(line, scope)
            result = result if isinstance(result, (list, tuple, int, str, type(None))) else type(result).__name__
        except Exception as raised:
            result = type(raised).__name__, [str(arg).replace("mindtorch_v2.", "torch.") for arg in raised.args]
    return result, [str(each.message) for each in warned if each.category is not ResourceWarning]
