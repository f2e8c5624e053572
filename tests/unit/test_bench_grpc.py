"""The arithmetic of gRPC's rows: ratios within a turn, goals, records that are measured in parts."""

from __future__ import annotations

from typing import Any

from benchmarks import grpc, grpc_clients, grpc_sends, grpc_start, grpc_waiting
from benchmarks.grpc_judging import line, ratio


def test_a_ratio_is_the_median_of_those_within_a_turn() -> None:
    # The machine is slow in the second turn: the medians of the sides alone would give 1.
    values = {"ours": [4.0, 1.0, 2.0], "apache": [2.0, 0.5, 4.0]}
    assert ratio(values) == 2.0
    assert line("x", ["a", "b"], values, least=2)[3:] == ["2.00", ">= 2.00", "yes"]
    assert line("x", ["a", "b"], values, most=1 / 3)[3:] == ["2.00", "<= 0.33", "**no**"]


def test_tls_is_judged_by_the_share_of_the_plaintext_rate() -> None:
    def run(plaintext: float, tls: float) -> dict[str, Any]:
        return {"plaintext": {"rate": plaintext, "cpu_us": 1.0}, "tls": {"rate": tls, "cpu_us": 2.0}}

    found = {"load": {"ours": [run(100_000, 60_000)] * 2, "apache": [run(20_000, 16_000)] * 2}}
    (shown,) = grpc_sends.tls_lines(found)
    assert shown[1:] == ["0.60; 60,000/s; 2 us", "0.80; 16,000/s; 2 us", "0.75", ">= 1.00", "**no**"]


def test_a_crowd_that_is_refused_elsewhere_is_compared_with_those_that_wait_there() -> None:
    few = {"count": 1000, "refused": 0}
    mine = {**few, "each_kb": 6.0, "cpu_us": 10.0}
    theirs = {**few, "each_kb": 30.0, "process_kb": 70.0, "cpu_us": 100.0}
    more = {"count": 10_000, "refused": 0, "each_kb": 5.0, "cpu_us": 50.0}
    found = {
        "ours": [mine, {**mine, "crowd": more}],
        "apache": [theirs, {**theirs, "crowd": {"count": 10_000, "refused": 8976}}],
    }
    assert [shown[1:] for shown in grpc_waiting.lines(found)] == [
        ["6 KB", "30 KB of heap (process: 70 KB)", "0.20", "<= 0.33", "yes"],
        ["5 KB", "30 KB of heap (process: 70 KB) (of 1,000)", "0.17", "<= 0.33", "yes"],
        ["10 us", "100 us", "0.10", "<= 0.33", "yes"],
        ["50 us", "100 us (of 1,000)", "0.50", "<= 0.33", "**no**"],
        ["0", "8,976", "", "0", "yes"],
    ]


def test_a_start_is_compared_with_the_same_broker_without_the_gateway() -> None:
    def runs(ready_s: float, idle_mb: float) -> list[dict[str, float]]:
        return [{"ready_s": ready_s, "idle_mb": idle_mb}] * 3

    ready, idle = grpc_start.lines({"with": runs(0.3, 40.0), "without": runs(0.3, 30.0)})
    assert ready[1:] == ["0.3 s, 0.3 s", "", "1.00 (ours to ours)", "<= 1.05", "yes"]
    assert idle[1:] == ["40 MB, 30 MB", "", "1.33 (ours to ours)", "<= 1.05", "**no**"]


def test_rates_and_arrivals_have_the_cpu_of_the_server_beside_them() -> None:
    mine = {"rate": 900.0, "cpu_us": 20.0, "p50_us": 800.0, "p99_us": 9000.0}
    theirs = {"rate": 1000.0, "cpu_us": 200.0, "p50_us": 1600.0, "p99_us": 8000.0}
    found = {"ours": [mine], "apache": [theirs]}
    assert grpc_clients.lines({"x": found})[0][1:] == [
        "900/s; 20 us", "1,000/s; 200 us", "0.90", ">= 1.00", "**no**",
    ]  # fmt: skip
    assert [shown[1:] for shown in grpc_clients.arrival_lines(found)] == [
        ["800 us; 20 us", "1,600 us; 200 us", "0.50", "<= 1.00", "yes"],
        ["9,000 us; 20 us", "8,000 us; 200 us", "1.12", "<= 1.00", "**no**"],
    ]


def test_rows_that_are_taken_again_leave_the_rest_of_the_record() -> None:
    kept = {"record": 1, "machine": 2, "grpc": {"load": 3}, "grpc_rows": {"tls": 4, "start": 5}}
    some = {"record": 6, "machine": 7, "grpc_rows": {"tls": 8}}
    assert grpc.merged(some, kept) == {**kept, "grpc_rows": {"tls": 8, "start": 5}}
    loads = {"record": 6, "machine": 7, "grpc": {"load": 9}}
    assert grpc.merged(loads, kept) == {**loads, "grpc_rows": kept["grpc_rows"]}
    assert grpc.merged(some, {}) == some
