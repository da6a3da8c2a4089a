"""Ops of libopapi that communicate within a group of ranks: products with collectives, and mixtures of experts over ranks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from client import CannError, Client, same
from ranks import Ranks

RANKS = 2
SUM = ("sum", 0, 1)  # reduceOp, commTurn, streamMode


class Pair:
    """Two ranks, each called from a thread of its own: both wait for the other in the op."""

    def __init__(self) -> None:
        self.ranks = Ranks(RANKS)
        self.names = [self._name(self.ranks, r) for r in range(RANKS)]
        self.threads = [ThreadPoolExecutor(1) for _ in range(RANKS)]
        self.clients = [thread.submit(Client, rank).result() for rank, thread in enumerate(self.threads)]

    @staticmethod
    def _name(ranks: Ranks, rank: int) -> str:
        text = ctypes.create_string_buffer(128)
        ranks.must("HcclGetCommName", ranks.comms[rank], text)
        return text.value.decode()

    def call(self, op: str, arguments: Callable[[int], tuple[Any, ...]]) -> list[Any]:
        """The op on every rank with arguments(rank); what each rank wrote."""
        running = [t.submit(self.clients[r].call, op, *arguments(r)) for r, t in enumerate(self.threads)]
        return [future.result() for future in running]

    def close(self) -> None:
        for rank, thread in enumerate(self.threads):
            thread.submit(self.clients[rank].must, "aclrtDestroyStream", self.clients[rank].stream).result()
            thread.submit(self.clients[rank].must, "aclrtResetDevice", rank).result()
            thread.shutdown()
        self.ranks.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


def halves(*shape: int) -> list[torch.Tensor]:
    return [(torch.randint(-16, 17, shape) / 8).half() for _ in range(RANKS)]


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float = 2e-2) -> None:
    same(got.float(), want.float(), rtol=tolerance, atol=tolerance)


def test_matmul_all_reduce(pair: Pair) -> None:
    a, b, x3 = halves(2, 3, 8), halves(8, 5), halves(2, 3, 5)
    bias = halves(5)
    parts = [a[r].float() @ b[r].float() + bias[r].float() for r in range(RANKS)]
    for got in pair.call("aclnnMatmulAllReduce", lambda r: (a[r], b[r], bias[r], pair.names[r], *SUM, torch.empty(2, 3, 5).half())):
        close(got, sum(parts))
    for got in pair.call("aclnnMatmulAllReduceV2", lambda r: (a[r], b[r], bias[r], x3[r], pair.names[r], *SUM, torch.empty(2, 3, 5).half())):
        close(got, sum(parts) + x3[0].float() + x3[1].float())
    lists = lambda r: ([a[r][0], a[r][1]], [b[r], b[r]], None, None, 0, pair.names[r], *SUM, [torch.empty(3, 5).half()] * 2)
    for got in pair.call("aclnnGroupedMatMulAllReduce", lists):
        close(torch.stack(got), sum(a[r].float() @ b[r].float() for r in range(RANKS)))


def test_a_group_that_is_none(pair: Pair) -> None:
    a, b = halves(3, 8), halves(8, 5)
    for name in ("nobody", ""):
        with pytest.raises(CannError, match="161002"):
            pair.call("aclnnMatmulAllReduce", lambda r: (a[r], b[r], None, name, *SUM, torch.empty(3, 5).half()))


@pytest.mark.parametrize("version", ["", "V2", "V3", "V4"])
def test_quantised_all_reduce(pair: Pair, version: str) -> None:
    a, b = ([torch.randint(-30, 30, s, dtype=torch.int8) for _ in range(RANKS)] for s in ((4, 8), (8, 6)))
    bias, scale = torch.randint(-50, 50, (6,), dtype=torch.int32), (torch.rand(6) * 0.01).bfloat16()
    token, x3 = torch.rand(4) + 0.5, halves(4, 6)
    x3 = [x.bfloat16() for x in x3]
    y = [((a[r].double() @ b[r].double() + bias) * scale.double()) * (token.double()[:, None] if version not in ("",) else 1) + x3[r].double() for r in range(RANKS)]
    comm1, comm2 = torch.full((6,), 0.05).bfloat16(), torch.full((6,), 0.1).bfloat16()

    def arguments(r: int) -> tuple[Any, ...]:
        out = torch.empty(4, 6).bfloat16()
        if version == "V4":
            return (a[r], b[r], bias, x3[r], token, scale, comm1, comm2, pair.names[r], *SUM, 0, 0, out)
        more = {"": (), "V2": (token,), "V3": (token, None, None)}[version]
        return (a[r], b[r], bias, x3[r], scale, *more, pair.names[r], *SUM, out)

    want = sum(y)
    if version == "V4":  # int8 is what goes around
        quantised = sum((part / comm1.double()).round().clamp(-128, 127) for part in y)
        want = (quantised * (comm1.double() / comm2.double())).round().clamp(-128, 127) * comm2.double()
    for got in pair.call(f"aclnnQuantMatmulAllReduce{version}", arguments):
        close(got, want, 0.11 if version == "V4" else 3e-2)


@pytest.mark.parametrize("kind", ["", "Quant", "WeightQuant"])
@pytest.mark.parametrize("inplace", [False, True])
def test_all_reduce_add_rms_norm(pair: Pair, kind: str, inplace: bool) -> None:
    a, residual, gamma = halves(1, 4, 8), halves(1, 4, 6), halves(6)
    b = halves(8, 6) if not kind else [torch.randint(-8, 8, (8, 6), dtype=torch.int8) for _ in range(RANKS)]
    if kind == "Quant":
        a = [torch.randint(-9, 9, (1, 4, 8), dtype=torch.int8) for _ in range(RANKS)]
    scale = (torch.rand(6) * 0.1).bfloat16() if kind == "Quant" else (torch.rand(6) * 0.1).half()
    weights = [w.float() * (scale.float() if kind else 1) for w in b]
    y = sum(a[r].float() @ weights[r] for r in range(RANKS)) + residual[0].float()
    norm = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * gamma[0].float()
    extra = {"": (), "Quant": (scale,), "WeightQuant": (scale, None)}[kind]
    size = (0,) if kind == "WeightQuant" else ()
    outs = lambda: (torch.empty(1, 4, 6).half(),) if inplace else (torch.empty(1, 4, 6).half(), torch.empty(1, 4, 6).half())
    name = f"aclnn{'Inplace' * inplace}{kind}MatmulAllReduceAddRmsNorm"
    arguments = lambda r: (a[r], b[r], None, *extra, residual[0].clone(), gamma[0], 1e-5, pair.names[r], *SUM, *size, *outs())
    for got in pair.call(name, arguments):
        close(got[0], y, 3e-2)
        close(got[1], norm, 3e-2)


def test_weight_quant_all_reduce(pair: Pair) -> None:
    a, scale, offset = halves(4, 64), torch.rand(2, 6).half() * 0.1, torch.randint(-3, 3, (2, 6)).half()
    b = [torch.randint(-8, 8, (64, 6), dtype=torch.int8) for _ in range(RANKS)]
    by = lambda v: v.float().repeat_interleave(32, 0)
    want = sum(a[r].float() @ ((b[r].float() + by(offset)) * by(scale)) for r in range(RANKS))
    for got in pair.call("aclnnWeightQuantMatmulAllReduce", lambda r: (a[r], b[r], None, scale, offset, None, pair.names[r], *SUM, 32, torch.empty(4, 6).half())):
        close(got, want, 3e-2)
    for got in pair.call("aclnnWeightQuantMatmulAllReduceV2", lambda r: (a[r], b[r], None, scale, offset, None, pair.names[r], SUM[0], "aiv", *SUM[1:], 32, torch.empty(4, 6).half())):
        close(got, want, 3e-2)


def test_gathered_and_scattered(pair: Pair) -> None:
    a, b, bias = halves(4, 8), halves(8, 6), halves(6)
    rows = torch.cat(a)
    for r, got in enumerate(pair.call("aclnnAllGatherMatmul", lambda r: (a[r], b[r], bias[r], pair.names[r], 0, 0, 1, torch.empty(8, 6).half(), torch.empty(8, 8).half()))):
        close(got[0], rows.float() @ b[r].float() + bias[r].float())
        same(got[1], rows)
    total = sum(a[r].float() @ b[r].float() for r in range(RANKS))
    for r, got in enumerate(pair.call("aclnnMatmulReduceScatter", lambda r: (a[r], b[r], None, pair.names[r], *SUM, torch.empty(2, 6).half()))):
        close(got, total[2 * r : 2 * r + 2])


def test_later_versions(pair: Pair) -> None:
    a, b, x3 = halves(4, 8), halves(8, 6), halves(4, 6)
    parts = [a[r].float() @ b[r].float() for r in range(RANKS)]
    for got in pair.call("aclnnMatmulAllReduceV3", lambda r: (a[r], b[r], None, x3[r], pair.names[r], "sum", "aicpu", 0, 1, torch.empty(4, 6).half())):
        close(got, sum(parts) + x3[0].float() + x3[1].float())
    more = (None, None, None, 0)
    got = pair.call("aclnnAllGatherMatmulV2", lambda r: (a[r], b[r], None, *more, pair.names[r], 0, 0, 1, 0, "aiv", torch.empty(8, 6).half(), None, None))
    for r in range(RANKS):
        close(got[r], torch.cat(a).float() @ b[r].float())
    got = pair.call("aclnnMatmulReduceScatterV2", lambda r: (a[r], b[r], None, *more, pair.names[r], *SUM, 0, "aiv", torch.empty(2, 6).half(), torch.empty(1)))
    for r in range(RANKS):
        close(got[r][0], sum(parts)[2 * r : 2 * r + 2])
        close(got[r][1], parts[r].abs().max()[None])
    q, w = ([torch.randint(-9, 9, s, dtype=torch.int8) for _ in range(RANKS)] for s in ((4, 8), (8, 6)))
    rows, columns = torch.rand(4), torch.rand(6) * 0.1
    got = pair.call("aclnnMatmulReduceScatterV2", lambda r: (q[r], w[r], None, rows, columns, None, 0, pair.names[r], *SUM, 0, "aiv", torch.empty(2, 6).half(), None))
    total = sum(q[r].float() @ w[r].float() for r in range(RANKS)) * rows[:, None] * columns
    for r in range(RANKS):
        close(got[r], total[2 * r : 2 * r + 2])
    by_rank = torch.rand(RANKS, 4, 1)
    outs = lambda: (torch.empty(8, 6).half(), torch.empty(8, 8, dtype=torch.int8), None)
    got = pair.call("aclnnAllGatherMatmulV2", lambda r: (q[r], w[r], None, by_rank[r], columns[None], None, 0, pair.names[r], 0, 0, 1, 0, "aiv", *outs()))
    for r in range(RANKS):
        close(got[r][0], (torch.cat(q).float() @ w[r].float()) * by_rank.view(8, 1) * columns)
        assert torch.equal(got[r][1], torch.cat(q))


def test_all_to_all_of_rows_and_columns(pair: Pair) -> None:
    a, b, bias = halves(4, 8), halves(8, 6), halves(6)
    y = [a[r].float() @ b[r].float() + bias[r].float() for r in range(RANKS)]
    turned = [t.t().contiguous() for t in b]
    for version, mode in (("", ()), ("V2", ("aiv",))):
        got = pair.call("aclnnMatmulAlltoAll" + version, lambda r: (a[r], turned[r], bias[r], None, pair.names[r], *mode, False, True, torch.empty(8, 3).half()))
        for r in range(RANKS):
            close(got[r], torch.cat([part[:, 3 * r : 3 * r + 3] for part in y]))
    wide = halves(16, 5)
    got = pair.call("aclnnAlltoAllMatmul", lambda r: (a[r], wide[r], None, None, pair.names[r], False, False, torch.empty(2, 5).half(), torch.empty(2, 16).half()))
    for r in range(RANKS):
        rows = torch.cat([x[2 * r : 2 * r + 2] for x in a], 1)
        same(got[r][1], rows)
        close(got[r][0], rows.float() @ wide[r].float())


def test_rows_of_experts(pair: Pair) -> None:
    """Two ranks with two experts each: rows go by rank and expert, are multiplied by expert, and come back."""
    counts = [[1, 2, 0, 1], [2, 0, 3, 1]]  # [sender][rank and expert of the receiver]
    received = [[counts[s][2 * r + e] for s in range(RANKS) for e in range(2)] for r in range(RANKS)]
    x, weight = [torch.randn(sum(c), 4).half() for c in counts], [torch.randn(2, 4, 3).half() for _ in range(RANKS)]
    pieces = [torch.split(x[s], counts[s]) for s in range(RANKS)]
    by_expert = [torch.cat([pieces[s][2 * r + e] for e in range(2) for s in range(RANKS)]) for r in range(RANKS)]
    product = [torch.cat([torch.cat([pieces[s][2 * r + e] for s in range(RANKS)]).float() @ weight[r][e].float() for e in range(2)]) for r in range(RANKS)]
    for version, mode in (("", ()), ("V2", ("aiv",))):
        got = pair.call("aclnnAlltoAllvGroupedMatMul" + version, lambda r: (
            x[r], weight[r], None, None, x[r], weight[r][0], pair.names[r], *mode, RANKS, counts[r], received[r], False, False, True,
            torch.empty(sum(received[r]), 3).half(), torch.empty(sum(counts[r]), 3).half(), torch.empty(sum(received[r]), 4).half()))  # fmt: skip
        for r in range(RANKS):
            close(got[r][0], product[r])
            close(got[r][1], x[r].float() @ weight[r][0].float())
            same(got[r][2], by_expert[r])
    turned = [w.transpose(1, 2).contiguous() for w in weight]
    got = pair.call("aclnnGroupedMatMulAlltoAllv", lambda r: (by_expert[r], turned[r], None, None, None, None, pair.names[r], RANKS, received[r], counts[r], True, False,
                                                              torch.empty(sum(counts[r]), 3).half(), None))  # fmt: skip
    for s in range(RANKS):
        close(got[s], torch.cat([pieces[s][2 * r + e].float() @ weight[r][e].float() for r in range(RANKS) for e in range(2)]))


@pytest.fixture(scope="module")
def ring(pair: Pair) -> Iterator[list[str]]:
    """A second group over the same ranks, as tensor parallel ranks have one beside that of the experts."""
    more = Ranks(RANKS)
    yield [Pair._name(more, r) for r in range(RANKS)]
    more.close()


@pytest.mark.parametrize("shard", [0, 1])
def test_batches_of_experts_over_two_groups(pair: Pair, ring: list[str], shard: int) -> None:
    """Here both groups have the same two ranks; of each rank's x the part of its place in the second group is gathered."""
    experts, rows, width, out = 4, 2, 6, 3
    x, weight = [torch.randn(experts, rows, width // (1 if shard else 2)).half() for _ in range(RANKS)], [torch.randn(2, width, out).half() for _ in range(RANKS)]
    swapped = [torch.cat([x[s][2 * r : 2 * r + 2] for s in range(RANKS)], 1) for r in range(RANKS)]                # (E / ep, ep C, H')
    gathered = torch.cat(swapped, 2) if shard == 0 else torch.cat([swapped[t][:, e * rows : (e + 1) * rows] for e in range(RANKS) for t in range(RANKS)], 1)
    got = pair.call("aclnnAlltoAllAllGatherBatchMatMul", lambda r: (
        x[r], weight[r], None, pair.names[r], ring[r], 2, 2, shard, 3, torch.empty(2, gathered.shape[1], out).half(),
        torch.empty(gathered.shape).half(), torch.empty(2, gathered.shape[1], out).half()))  # fmt: skip
    for r in range(RANKS):
        y = gathered.float() @ weight[r].float()
        close(got[r][0], y.relu())
        same(got[r][1], gathered)
        close(got[r][2], y)
    inner, hidden = [torch.randn(2, 8, 5).half() for _ in range(RANKS)], [torch.randn(2, 5, 4).half() for _ in range(RANKS)]
    total = sum(inner[r].float() @ hidden[r].float() for r in range(RANKS))
    shape = (4, 4, 2) if shard == 0 else (4, 2, 4)
    got = pair.call("aclnnBatchMatMulReduceScatterAlltoAll", lambda r: (inner[r], hidden[r], None, pair.names[r], ring[r], 2, 2, shard, torch.empty(shape).half()))
    piece = lambda s, e: total[:, 4 * e : 4 * e + 4, 2 * s : 2 * s + 2] if shard == 0 else total[:, (2 * e + s) * 2 : (2 * e + s) * 2 + 2]
    for r in range(RANKS):
        close(got[r], torch.cat([piece(s, r) for s in range(RANKS)]), 3e-2)


# ---- mixtures of experts -----------------------------------------------------------------------------------------------------------
EXPERTS, LOCAL, TOKENS, WIDTH, CHOSEN, MOST = 4, 2, 5, 8, 3, 40


def dispatch(pair: Pair, version: str, x: list[torch.Tensor], ids: list[torch.Tensor], mask: torch.Tensor | None, mode: int, weights: list[torch.Tensor]) -> list[Any]:
    def arguments(r: int) -> tuple[Any, ...]:
        elastic = (None,) if version == "V3" else ()
        special = (0, 1, 0) if version == "V3" else ()
        algorithm = () if version == "" else ("",)
        assist = torch.zeros(TOKENS * CHOSEN if version == "" else MOST * 128, dtype=torch.int32)
        return (x[r], ids[r], None, mask, weights[r], *elastic, pair.names[r], RANKS, r, EXPERTS, "", 1, 0, 0, 1, 0, mode, 0, 1, *algorithm, *special,
                torch.zeros(MOST, WIDTH, dtype=torch.int8 if mode else torch.float16), torch.zeros(MOST), assist, torch.zeros(LOCAL, dtype=torch.int64),
                torch.zeros(EXPERTS, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(MOST))  # fmt: skip

    return pair.call(f"aclnnMoeDistributeDispatch{version}", arguments)


@pytest.mark.parametrize("version", ["", "V2", "V3"])
@pytest.mark.parametrize("masked", [False, True])
def test_dispatch_and_combine(pair: Pair, version: str, masked: bool) -> None:
    x = [torch.randn(TOKENS, WIDTH).half() for _ in range(RANKS)]
    ids = [torch.stack([torch.randperm(EXPERTS + (version == "V3"))[:CHOSEN] for _ in range(TOKENS)]).int() for _ in range(RANKS)]
    weights, mask = [torch.rand(TOKENS, CHOSEN) for _ in range(RANKS)], torch.tensor([True, True, True, False, False]) if masked else None
    seen = range(3 if masked else TOKENS)
    sent = {e: [(r, t) for r in range(RANKS) for t in seen if e in ids[r][t]] for e in range(EXPERTS)}
    got = dispatch(pair, version, x, ids, mask, 0, weights)
    for r in range(RANKS):
        rows = [x[s][t] for e in range(LOCAL * r, LOCAL * r + LOCAL) for s, t in sent[e]]
        same(got[r][0][: len(rows)], torch.stack(rows))
        assert got[r][3].tolist() == [len(sent[e]) for e in range(LOCAL * r, LOCAL * r + LOCAL)]
    experts = [torch.arange(1, LOCAL + 1) + LOCAL * r for r in range(RANKS)]  # an expert multiplies by its number
    computed = [got[r][0].clone() for r in range(RANKS)]
    for r in range(RANKS):
        factor = torch.repeat_interleave(experts[r], got[r][3]).half()
        computed[r][: len(factor)] *= factor[:, None]
    want = [torch.zeros(TOKENS, WIDTH) for _ in range(RANKS)]
    for r in range(RANKS):
        for t in seen:
            for k in range(CHOSEN):
                e = int(ids[r][t, k])
                want[r][t] += weights[r][t, k] * x[r][t].float() * (e + 1 if e < EXPERTS else 1)
        if version == "V3" and masked:  # experts that copy are not asked whether the token is active
            for t in range(3, TOKENS):
                want[r][t] += sum(weights[r][t, k] for k in range(CHOSEN) if ids[r][t, k] == EXPERTS) * x[r][t].float()

    def arguments(r: int, norm: bool) -> tuple[Any, ...]:
        residual = (x[r].view(TOKENS, 1, WIDTH), torch.ones(WIDTH).half()) if norm else ()
        optional = {"": (None, mask, None, None, None, None), "V2": (None, mask, None, None, None, None, None), "V3": (None, mask, None, None, None, None, None, None, x[r], None, None, None)}[version]
        special = (0, 1, 0) if version == "V3" else ()
        algorithm = () if version == "" else ("",)
        shape = (TOKENS, 1, WIDTH) if norm else (TOKENS, WIDTH)
        outs = (torch.empty(shape).half(), torch.empty(TOKENS, 1, 1), torch.empty(shape).half()) if norm else (torch.empty(shape).half(),)
        epsilon = (1e-5,) if norm else ()
        return (computed[r], ids[r], got[r][2], got[r][4], weights[r], *residual, *optional, pair.names[r], RANKS, r, EXPERTS, "", 1, 0, 0, 1, 0, 0, 0, 0, 0,
                *algorithm, *epsilon, *special, *outs)  # fmt: skip

    for r, out in enumerate(pair.call(f"aclnnMoeDistributeCombine{version}", lambda r: arguments(r, False))):
        close(out, want[r])
    if version == "":
        return
    for r, out in enumerate(pair.call(f"aclnnMoeDistributeCombineAddRmsNorm{'V2' if version == 'V3' else ''}", lambda r: arguments(r, True))):
        total = want[r] + x[r].float()
        close(out[2].view(TOKENS, WIDTH), total)
        close(out[0].view(TOKENS, WIDTH), total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-5), 5e-2)


def test_dispatch_quantises(pair: Pair) -> None:
    x, ids = [torch.randn(TOKENS, WIDTH).half() for _ in range(RANKS)], [torch.tensor([[0, 1, 2]] * TOKENS).int()] * RANKS
    got = dispatch(pair, "V2", x, ids, None, 2, [torch.rand(TOKENS, CHOSEN)] * RANKS)
    rows = torch.cat(x).float()
    scale = rows.abs().amax(1) / 127
    for e in range(2):
        same(got[0][1][10 * e : 10 * e + 10], scale, rtol=1e-4, atol=1e-6)
        assert (got[0][0][10 * e : 10 * e + 10].float() - (rows / scale[:, None]).round()).abs().max() <= 1


def test_barriers(pair: Pair) -> None:
    x = torch.ones(2)
    for op, more in (("aclnnDistributeBarrier", ()), ("aclnnDistributeBarrierV2", (None, None))):
        for got in pair.call(op, lambda r: (x, *more, pair.names[r], RANKS)):
            same(got, x)
    pair.call("aclnnMoeDistributeBufferReset", lambda r: (None, pair.names[r], RANKS, 1))
    with pytest.raises(CannError, match="ranks"):
        pair.call("aclnnDistributeBarrier", lambda r: (x, pair.names[r], RANKS + 1))
