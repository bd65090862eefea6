"""Any arguments of the sampling functions: what the kernel reads is what the caller said, or nothing is launched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashinfer_compat import CompatError, sampling
from flashinfer_compat.bridges import rng, thresholds

from .sampling_kernels import Generator, RecordingModule, kernels

__all__ = ["kernels"]

#: The module is made anew by each example; the fixture only puts it in place.
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
VOCABULARY = 6
THRESHOLD = {
    "top_k_sampling_from_probs": ("top_k", st.integers(-2, VOCABULARY + 2), [torch.int32, torch.int64]),
    "top_p_sampling_from_probs": ("top_p", st.sampled_from([0.0, 0.25, 0.5, 1.0]), [torch.float32, torch.float64]),
    "min_p_sampling_from_probs": ("min_p", st.sampled_from([0.0, 0.25, 0.5, 1.0]), [torch.float32, torch.float16]),
}


def strided(tensor: torch.Tensor, stride: int) -> torch.Tensor:
    """The same values, `stride` elements apart, with others between them."""
    spread = torch.full((len(tensor), stride), 3, dtype=tensor.dtype)
    spread[:, 0] = tensor
    return spread[:, 0]


@pytest.mark.parametrize("name", THRESHOLD)
@relaxed
@given(data=st.data())
def test_each_output_row_has_its_distributions_threshold(
    kernels: RecordingModule, release: str, name: str, data: st.DataObject
) -> None:
    threshold, values, dtypes = THRESHOLD[name]
    distributions = data.draw(st.integers(1, 5))
    rows = data.draw(st.none() | st.lists(st.integers(0, distributions - 1), min_size=1, max_size=9))
    given_values = data.draw(st.lists(values, min_size=distributions, max_size=distributions))
    tensor = strided(torch.tensor(given_values, dtype=data.draw(st.sampled_from(dtypes))), data.draw(st.integers(1, 3)))
    indices = None
    if rows is not None:
        index_dtype = data.draw(st.sampled_from([torch.int32, torch.int64]))
        indices = strided(torch.tensor(rows, dtype=index_dtype), data.draw(st.integers(1, 3)))
    kernels.launches.clear()
    samples = getattr(sampling, name)(
        torch.full((distributions, VOCABULARY), 1 / VOCABULARY), tensor, indices, seed=1, offset=0
    )
    used = range(distributions) if rows is None else rows
    assert kernels.only().thresholds(threshold, release) == [given_values[row] for row in used]
    assert samples.shape == (len(used),)
    assert samples.dtype == (torch.int32 if indices is None else indices.dtype)


@given(
    numbers=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=5),
    seed=st.integers(0, (1 << 64) - 1),
    start=st.integers(0, 1 << 40),
)
def test_draws_follow_one_another_without_gap_or_overlap(numbers: list[int], seed: int, start: int) -> None:
    generator = Generator(seed=seed, offset=4 * start)
    expected = 4 * start
    for count in numbers:
        drawn_seed, offset = rng.drawn(count, generator, torch.device("cpu"))  # type: ignore[arg-type]
        assert isinstance(drawn_seed, int)
        assert drawn_seed % (1 << 64) == seed
        assert -(1 << 63) <= drawn_seed < 1 << 63
        assert offset == expected
        expected += -(-count // 4) * 4
        assert generator.offset == expected
    assert generator.moves == len(numbers)


@given(distributions=st.integers(1, 6), rows=st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_layout_by_output_row_keeps_the_length_that_the_binding_checks(distributions: int, rows: list[int]) -> None:
    indices = torch.tensor([row % distributions for row in rows])
    top_k = torch.arange(10, 10 + distributions)
    laid_out = thresholds.top_k_by_output_row(top_k, indices)
    assert laid_out.shape == (distributions,)
    assert laid_out.dtype == torch.int32
    # `.int()` and `.contiguous()` of FlashInfer's wrapper keep the storage, which the kernel reads on.
    assert laid_out.int() is laid_out
    assert torch.equal(torch.as_strided(laid_out, (len(rows),), (1,)).long(), top_k[indices])


arguments = st.one_of(
    st.none(),
    st.integers(-(1 << 66), 1 << 66),
    st.floats(),
    st.sampled_from([torch.int32, torch.int64, torch.float32, torch.bool]).flatmap(
        lambda dtype: st.lists(st.integers(0, 3), max_size=2).map(lambda shape: torch.ones(shape, dtype=dtype))
    ),
)


@pytest.mark.parametrize("name", THRESHOLD)
@relaxed
@given(threshold=arguments, indices=arguments, seed=arguments, offset=arguments)
def test_bad_arguments_are_refused_before_anything_is_done(
    kernels: RecordingModule, name: str, threshold: Any, indices: Any, seed: Any, offset: Any
) -> None:
    kernels.launches.clear()
    generator = Generator()
    probs = torch.full((3, VOCABULARY), 1 / VOCABULARY)
    if indices is not None and not isinstance(indices, torch.Tensor):
        indices = None
    try:
        getattr(sampling, name)(probs, threshold, indices, generator=generator, seed=seed, offset=offset)
    except CompatError:
        assert kernels.launches == []
        assert generator.moves == 0
    else:
        assert len(kernels.launches) == 1
        assert generator.moves == (seed is None)
