"""Values that R prints."""

import numpy as np

from scirocco_papers.r_stream import RStream


def test_uniforms():
    np.testing.assert_allclose(RStream(1).uniform(3), [0.2655087, 0.3721239, 0.5728534], atol=5e-8)


def test_normals():
    np.testing.assert_allclose(RStream(42).normal(3), [1.37095845, -0.56469817, 0.36312841], atol=5e-9)
    np.testing.assert_allclose(RStream(1).normal(2), [-0.6264538, 0.1836433], atol=5e-8)


def test_one_stream_serves_all_kinds():
    stream = RStream(1)
    assert stream.sample(2, 3).tolist() == [0, 0, 1]  # sample(2, 3, TRUE) with "Rounding": 1 1 2
    assert stream.uniform(1)[0] == RStream(1).uniform(4)[3]


def test_law(seed):
    draws = RStream(seed).normal(200_000)
    assert abs(draws.mean()) * 200_000**0.5 < 5
    assert abs(draws.var() - 1) * (200_000 / 2) ** 0.5 < 5
