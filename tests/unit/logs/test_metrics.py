"""What is counted, as Prometheus reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import treadle
from treadle.logs import MAX_SERIES, Counter, Gauge, Histogram, count_tokens, metrics, render

COUNTED = [metric.name for metric in metrics.ALL]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests in this process have counted is left out."""
    monkeypatch.setattr(metrics, "ALL", [])


def samples(*gauges: Gauge) -> Samples:
    families = list(text_string_to_metric_families(render(gauges)))
    assert all(family.documentation and family.type in ("counter", "gauge", "histogram") for family in families)
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_counter_has_a_series_for_each_combination_of_labels() -> None:
    counter = Counter("asked_total", "How often.", "who", "how")
    counter.add("a", "b")
    counter.add("a", "b", amount=2.5)
    counter.add("b", "a")
    found = samples()
    assert found["treadle_asked_total", (("how", "b"), ("who", "a"))] == 3.5
    assert found["treadle_asked_total", (("how", "a"), ("who", "b"))] == 1


def test_what_has_not_happened_is_not_listed() -> None:
    Counter("never_total", "Never.")
    Histogram("never_seconds", "Never.", (1,))
    assert not [name for name, _ in samples() if "never" in name]


def test_any_text_can_be_a_label() -> None:
    counter = Counter("said_total", "What.", "text")
    texts = ['a "b"', "a\\nb", "a\nb", "a\\", "", "ü}{,="]
    for text in texts:
        counter.add(text)
    assert [labels[0][1] for name, labels in samples() if name == "treadle_said_total"] == texts


def test_labels_that_others_write_are_bounded_in_number_and_length() -> None:
    for number in range(3 * MAX_SERIES):
        count_tokens("mine", f"model-{number}", {"input": 1}, None)
    counter = Counter("models_total", "Which.", "model")
    for number in range(3 * MAX_SERIES):
        counter.add(f"{'long' * 100}{number}" if number == 0 else f"model-{number}")
    found = {labels[0][1]: value for (name, labels), value in samples().items() if name == "treadle_models_total"}
    assert len(found) == MAX_SERIES + 1
    assert found["other"] == 2 * MAX_SERIES
    assert max(map(len, found)) == metrics.MAX_LABEL


def test_a_key_in_place_of_a_model_is_not_shown() -> None:
    Counter("used_total", "Which.", "model").add("sk-proj-abcdefghijklmnopqrstuvwxyz0123456789")
    assert "abcdefghij" not in render(())


def test_a_histogram_counts_what_took_at_most_so_long() -> None:
    histogram = Histogram("waited_seconds", "How long.", (0.1, 1), "status")
    for seconds in (0.05, 0.1, 0.5, 7):
        histogram.add(seconds, "done")
    histogram.add(1, "failed")
    found = samples()
    counts = [found["treadle_waited_seconds_bucket", (("le", le), ("status", "done"))] for le in ("0.1", "1", "+Inf")]
    assert counts == [2, 3, 4]
    assert found["treadle_waited_seconds_count", (("status", "done"),)] == 4
    assert found["treadle_waited_seconds_sum", (("status", "done"),)] == pytest.approx(7.65)
    assert found["treadle_waited_seconds_count", (("status", "failed"),)] == 1


def test_what_is_true_now_comes_from_the_server_and_the_process() -> None:
    found = samples(Gauge("treadle_open", "Open ones.", 3), Gauge("treadle_bytes_total", "Bytes.", 2**40 + 1))
    assert found["treadle_open", ()] == 3
    assert found["treadle_bytes_total", ()] == 2**40 + 1
    assert found["process_resident_memory_bytes", ()] > 1 << 20
    assert found["process_open_fds", ()] > 2


def test_the_page_for_operators_names_them_all() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    source = "".join(path.read_text(encoding="utf-8") for path in Path(treadle.__file__).parent.rglob("*.py"))
    gauges = re.findall(r'Gauge\(\s*"(treadle_\w+)"', source)
    missing = {f"`{name}`" for name in (*COUNTED, *gauges)} - set(re.findall(r"`\w+`", page))
    assert len(gauges) > 10
    assert not missing
