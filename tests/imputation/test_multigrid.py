"""The solver against the exact solution, on the systems that are hard for it."""

import ast
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from tests.authors import imputation_cases
from tests.conftest import SHARED
from tests.reference import impute_linear
from twinlens.imputation import multigrid, multigrid_compiled, multigrid_torch
from twinlens.imputation.linear_system import solve_direct
from twinlens.imputation.multigrid import solve

TOLERANCE = 1e-3


def smooth_map(rng, height, width):
    coarse = torch.from_numpy(rng.random((1, 1, 7, 7)) ** 2)
    return interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False)[0, 0].numpy()


def superpixel_map(rng, height, width):
    size = int(rng.integers(3, 20))
    return np.kron(rng.random((-(-height // size), -(-width // size))), np.ones((size, size)))[:height, :width]


MAPS = {
    "smooth": smooth_map,
    "heavy-tailed": lambda rng, height, width: np.abs(rng.standard_t(1.5, (height, width))),
    "eight bits": lambda rng, height, width: np.round(255 * smooth_map(rng, height, width)),
    "superpixels": superpixel_map,
}


def single(rng, height, width):
    keep = np.zeros((height, width), dtype=bool)
    keep[rng.integers(height), rng.integers(width)] = True
    return keep


def pair(rng, height, width):
    return single(rng, height, width) | single(rng, height, width)


def corners(rng, height, width):
    keep = np.zeros((height, width), dtype=bool)
    size = int(rng.integers(1, 4))
    keep[:size, :size] = True
    if rng.random() < 0.5:
        keep[-size:, -size:] = True
    return keep


def checkerboard(rng, height, width):
    size = int(rng.integers(1, 4))
    y, x = np.mgrid[:height, :width] // size
    return (y + x) % 2 == 0


def stripes(rng, height, width):
    axis, period = int(rng.integers(2)), int(rng.integers(2, 30))
    return np.mgrid[:height, :width][axis] % period == 0


def corridors(rng, height, width):
    """A snake one pixel wide, in walls with a few holes."""
    keep = np.ones((height, width), dtype=bool)
    keep[1::2] = False
    keep[::4, -1:] = False
    keep[2::4, :1] = False
    keep[0] = True
    return keep & (rng.random((height, width)) < 0.95) | (np.arange(width) == width // 2) & (rng.random() < 0.5)


MASKS = {
    "single": single,
    "pair": pair,
    "corners": corners,
    "checkerboard": checkerboard,
    "stripes": stripes,
    "corridors": corridors,
}
FAMILIES = [*MAPS, *MASKS]


def draw_keep(rng, family, height, width):
    if family in MASKS:
        keep = MASKS[family](rng, height, width)
    else:
        share = rng.choice([0.02, 0.1, 0.3, 0.5, 0.8, 0.9, 0.98, 0.99, 0.999])
        order = np.argsort(MAPS[family](rng, height, width).ravel(), kind="stable")
        keep = np.ones(height * width, dtype=bool)
        keep[order[: round(share * keep.size)]] = False
        keep = keep.reshape(height, width)
    if not keep.any():
        keep[rng.integers(height), rng.integers(width)] = True
    return keep


def draw_image(rng, height, width):
    files = sorted((SHARED / "data/imagenet/images").glob("*.jpg"))
    if not files or rng.random() < 0.5:
        return (5 * rng.random((3, height, width)) - 2.5).astype(np.float32)
    image_module = pytest.importorskip("PIL.Image")
    with image_module.open(files[rng.integers(len(files))]) as file:
        picture = np.asarray(file.convert("RGB").resize((width, height)), dtype=np.float32)
    return np.ascontiguousarray(picture.transpose(2, 0, 1) / 60 - 2.1)


def draw_case(seed, family, *, largest=64):
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    height, width = int(rng.integers(1, largest + 1)), int(rng.integers(1, largest + 1))
    if seed % 8 == 0:
        height = int(rng.integers(1, 4))  # long and thin
    return draw_image(rng, height, width), draw_keep(rng, family, height, width)


def worst_error(solution, image, keep):
    return np.abs(solution.values[0].double().numpy() - solve_direct(image, keep)).max()


def random_batch(count, height, width, *, dtype=torch.float32, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.normal(size=(count, channels, height, width))).to(dtype)
    families = ("smooth", "heavy-tailed", "superpixels")
    keep = [draw_keep(rng, families[i % 3], height, width) for i in range(count)]
    return images, torch.from_numpy(np.stack(keep))


@pytest.mark.parametrize("family", FAMILIES)
def test_true_error_is_within_the_tolerance_on_hard_systems(family):
    for seed in range(22):
        image, keep = draw_case(seed, family)
        solution = solve(torch.from_numpy(image)[None], torch.from_numpy(keep)[None], method="multigrid")
        error = worst_error(solution, image, keep)
        assert error <= TOLERANCE, (family, seed, keep.shape)
        assert min(keep.shape) == 1 or not solution.fallback.any(), (family, seed, keep.shape)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(300, 200), (224, 224), (157, 2), (2, 300)])
def test_true_error_is_within_the_tolerance_on_large_systems(family, shape):
    rng = np.random.default_rng(3)
    image, keep = draw_image(rng, *shape), draw_keep(rng, family, *shape)
    solution = solve(torch.from_numpy(image)[None], torch.from_numpy(keep)[None], method="multigrid")
    assert worst_error(solution, image, keep) <= TOLERANCE
    assert not solution.fallback.any()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_torch_path_meets_the_tolerance_too(family):
    for seed in range(1, 7):
        image, keep = draw_case(seed, family)
        solution = solve(torch.from_numpy(image)[None], torch.from_numpy(keep)[None], method="torch")
        assert worst_error(solution, image, keep) <= TOLERANCE, (family, seed, keep.shape)
        assert min(keep.shape) == 1 or not solution.fallback.any(), (family, seed, keep.shape)


def test_the_torch_path_takes_the_same_cycles_as_the_compiled_one():
    images, keep = random_batch(6, 57, 80)
    compiled, batched = solve(images, keep, method="multigrid"), solve(images, keep, method="torch")
    assert (compiled.values - batched.values).abs().max() <= TOLERANCE
    assert (compiled.cycles - batched.cycles).abs().max() <= 1
    assert compiled.cycles.min() >= 2


@pytest.mark.parametrize("method", ["multigrid", "torch"])
def test_float64_reaches_tight_tolerances(method):
    images, keep = random_batch(3, 61, 45, dtype=torch.float64)
    solution = solve(images, keep, tolerance=1e-8, method=method)
    exact = solve(images, keep, method="direct")
    assert (solution.values - exact.values).abs().max() <= 1e-8
    assert solution.values.dtype == torch.float64
    assert not solution.fallback.any()
    assert solution.cycles.min() > 5


@pytest.mark.parametrize("method", ["multigrid", "torch"])
def test_a_wide_range_of_values_is_solved_in_float64(method):
    images, keep = random_batch(2, 40, 50)
    images[1] *= 1000
    solution = solve(images, keep, method=method)
    exact = solve(images.double(), keep, method="direct").values
    assert (solution.values[0] - exact[0]).abs().max() <= TOLERANCE
    assert torch.equal(solution.values[1], exact[1].float()) or (solution.values[1] - exact[1]).abs().max() <= 1.2e-3
    assert not solution.fallback.any()
    assert solution.cycles[1] > solution.cycles[0]


@pytest.mark.parametrize("method", ["multigrid", "torch"])
def test_what_misses_the_tolerance_is_solved_directly(method, monkeypatch):
    images, keep = random_batch(3, 30, 34)
    keep[1] = True
    monkeypatch.setattr(multigrid, "_MOST_CYCLES", 1)
    solution = solve(images, keep, method=method)
    assert solution.fallback.tolist() == [True, False, True]
    assert solution.cycles.tolist() == [0, 0, 0]
    exact = solve(images, keep, method="direct").values
    assert torch.equal(solution.values, exact)


def test_an_unreachable_tolerance_is_met_by_the_direct_solver():
    images, keep = random_batch(1, 40, 40, dtype=torch.float64)
    solution = solve(images, keep, tolerance=1e-15, method="multigrid")
    assert solution.fallback.tolist() == [True]
    assert torch.equal(solution.values, solve(images, keep, method="direct").values)


@pytest.mark.parametrize("method", ["auto", "multigrid", "torch", "direct"])
def test_trivial_systems(method):
    images = torch.randn(3, 2, 20, 30, generator=torch.Generator().manual_seed(0))
    keep = torch.ones(3, 20, 30, dtype=torch.bool)
    keep[1] = False
    keep[1, 7, 11] = True
    keep[2, 3, 4] = False
    images[2, :, 3, 4] = torch.nan  # what stands at removed places is never read
    solution = solve(images, keep, method=method)
    assert torch.equal(solution.values[0], images[0])
    assert (solution.values[1] - images[1, :, 7:8, 11:12]).abs().max() < 1e-5
    around = images[2, :, 2:5, 3:6].clone()
    around[:, 1, 1] = 0
    kernel = torch.tensor([[1.0, 2, 1], [2, 0, 2], [1, 2, 1]]) / 12
    assert (solution.values[2, :, 3, 4] - (around * kernel).sum((1, 2))).abs().max() <= TOLERANCE
    assert solution.cycles[:2].tolist() == [0, 0]


@pytest.mark.parametrize("method", ["auto", "multigrid", "torch", "direct"])
def test_one_pixel(method):
    images, keep = torch.full((2, 3, 1, 1), 0.3), torch.ones(2, 1, 1, dtype=torch.bool)
    assert torch.equal(solve(images, keep, method=method).values, images)


@given(
    height=st.integers(2, 40),
    width=st.integers(2, 40),
    channels=st.integers(1, 5),
    seed=st.integers(0, 2**31),
    method=st.sampled_from(["multigrid", "torch"]),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_kept_values_stay_and_filled_ones_lie_between_them(height, width, channels, seed, method):
    images, keep = random_batch(2, height, width, channels=channels, seed=seed)
    values = solve(images, keep, method=method).values
    for image, filled, kept in zip(images, values, keep, strict=True):
        assert torch.equal(filled[:, kept], image[:, kept])
        assert (filled.amin((1, 2)) >= image[:, kept].amin(1)).all()
        assert (filled.amax((1, 2)) <= image[:, kept].amax(1)).all()


@pytest.mark.parametrize("method", ["multigrid", "torch"])
def test_an_image_does_not_depend_on_its_batch(method):
    images, keep = random_batch(7, 50, 37)
    keep[3] = True
    together = solve(images, keep, method=method)
    order = [4, 0, 6, 3]
    permuted = solve(images[order], keep[order], method=method)
    assert torch.equal(permuted.values, together.values[order])
    assert torch.equal(permuted.cycles, together.cycles[order])
    assert torch.equal(permuted.estimate, together.estimate[order])
    alone = solve(images[5:6], keep[5:6], method=method)
    assert torch.equal(alone.values[0], together.values[5])
    assert len(together.cycles.unique()) > 1  # otherwise nothing was frozen


def test_the_number_of_threads_changes_nothing(monkeypatch):
    monkeypatch.setattr(multigrid_compiled, "_VALUES_PER_TASK", 1)  # one image per task
    images, keep = random_batch(9, 40, 40)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = solve(images, keep, method="multigrid")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    shared = solve(images, keep, method="multigrid")
    assert torch.equal(alone.values, shared.values)
    assert torch.equal(alone.estimate, shared.estimate)


def test_several_threads_may_solve_at_once():
    images, keep = random_batch(4, 60, 60)
    expected, found = solve(images, keep).values, {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: solve(images, keep).values})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [torch.equal(found[i], expected) for i in range(4)] == [True] * 4


@pytest.mark.parametrize("method", ["multigrid", "torch"])
def test_views_and_half_precision(method):
    images, keep = random_batch(2, 33, 48)
    expected = solve(images, keep, method=method).values
    view = images.transpose(2, 3).contiguous().transpose(2, 3)
    kept = torch.stack((keep, keep), dim=3)[..., 0]
    assert not view.is_contiguous()
    assert not kept.is_contiguous()
    assert torch.equal(solve(view, kept, method=method).values, expected)
    half = solve(images.half(), keep, method=method).values
    assert half.dtype == torch.float16
    assert (half - expected).abs().max() < 1e-2


def test_signals_and_tiny_volumes_are_solved_exactly():
    rng = np.random.default_rng(0)
    for shape in [(31,), (1, 31), (31, 1), (1, 31, 1), (6, 6, 7)]:
        images, keep = rng.normal(size=(2, 2, *shape)), rng.random((2, *shape)) < 0.4
        solution = solve(torch.from_numpy(images), torch.from_numpy(keep))
        for i in range(2):
            assert np.allclose(solution.values[i].numpy(), solve_direct(images[i], keep[i]), rtol=0, atol=1e-13)
            assert np.array_equal(solution.values[i].numpy()[:, keep[i]], images[i][:, keep[i]])
        assert solution.cycles.tolist() == [0, 0]
        assert solution.fallback.tolist() == [False, False]


def test_auto_uses_multigrid_for_images_and_not_for_tiny_ones():
    images, keep = random_batch(1, 40, 40)
    assert solve(images, keep).cycles.item() > 0
    assert solve(images[..., :16, :16], keep[:, :16, :16] | True).cycles.item() == 0
    tiny = torch.zeros(1, 16, 16, dtype=torch.bool)
    tiny[:, 0, :2] = True
    assert solve(images[..., :16, :16], tiny).cycles.item() == 0


@pytest.mark.parametrize("method", ["auto", "multigrid", "torch", "direct"])
def test_systems_without_an_answer_are_refused_by_their_index(method):
    images, keep = random_batch(4, 20, 20)
    empty = keep.clone()
    empty[2] = False
    with pytest.raises(ValueError, match="image 2 keeps nothing"):
        solve(images, empty, method=method)
    for value in (torch.nan, torch.inf):
        bad = images.clone()
        y, x = keep[1].nonzero()[0].tolist()
        bad[1, 2, y, x] = value
        with pytest.raises(ValueError, match="image 1 holds NaN or infinity"):
            solve(bad, keep, method=method)


def test_wrong_arguments_are_refused():
    images, keep = random_batch(2, 8, 9)
    with pytest.raises(ValueError, match=r"`keep` must be \(2, 8, 9\).*got \(2, 9, 8\)"):
        solve(images, keep.transpose(1, 2))
    with pytest.raises(TypeError, match=r"`keep` must be a bool tensor.*got torch\.float32"):
        solve(images, keep.float())
    with pytest.raises(TypeError, match=r"`images` must be a floating-point tensor; got torch\.int64"):
        solve(images.long(), keep)
    with pytest.raises(TypeError, match="`images` must be a floating-point tensor; got ndarray"):
        solve(images.numpy(), keep)
    with pytest.raises(ValueError, match=r"`images` must be \(N, C, \*S\) with one to three spatial axes"):
        solve(images[:, 0, 0], keep[:, 0])
    with pytest.raises(ValueError, match="`tolerance` must be positive; got 0"):
        solve(images, keep, tolerance=0)
    with pytest.raises(ValueError, match="`method` must be one of auto, multigrid, torch, direct; got 'cg'"):
        solve(images, keep, method="cg")
    with pytest.raises(ValueError, match="method='multigrid' solves images"):
        solve(images[..., 0], keep[..., 0], method="multigrid")
    with pytest.raises(ValueError, match="`keep` must be on the device of `images`, meta"):
        solve(images.to("meta"), keep)


METHODS = ["auto", "multigrid", "torch", "direct"]


def check_solution(method, image, keep, expected, case):
    found = solve(torch.from_numpy(image)[None], torch.from_numpy(keep)[None], method=method).values[0].numpy()
    assert np.abs(found - expected).max() <= (1e-5 if method == "direct" else TOLERANCE), case


@pytest.mark.parametrize("method", METHODS)
def test_small_cases_are_solved_as_the_definition_reads(method):
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:9, :11]
    ring = (rows % 8 == 0) | (columns % 10 == 0)
    cases = {
        "half": rng.random((9, 11)) < 0.5,
        "nearly nothing kept": rng.permutation(99).reshape(9, 11) < 3,
        "one corner kept": (rows < 3) & (columns < 4),
        "one kept": (rows == 6) & (columns == 2),
        "one removed": (rows != 6) | (columns != 2),
        "the border kept": ring,
        "the border removed": ~ring,
        "all kept": rows >= 0,
    }
    for case, keep in cases.items():
        image = rng.normal(size=(3, 9, 11)).astype(np.float32)
        check_solution(method, image, keep, impute_linear(image.astype(float), set(np.flatnonzero(keep))), case)


@pytest.mark.parametrize("method", METHODS)
def test_cases_of_the_authors_code(method):
    for name, case in imputation_cases().items():
        check_solution(method, case["image"], case["mask"] == 1, case["imputed"], name)


@pytest.mark.parametrize("method", METHODS)
def test_golden_cases(golden, method):
    with np.load(golden / "imputation.npz") as stored:
        cases = sorted({name.split("/")[0] for name in stored})
        assert len(cases) == 10
        for case in cases:
            image, keep = stored[f"{case}/image"], stored[f"{case}/mask"] == 1
            check_solution(method, image, keep, stored[f"{case}/imputed"], case)


def test_the_compiled_solver_is_there_where_a_compiler_is():
    if shutil.which(os.environ.get("CC", "cc")) is None or "TWINLENS_SOLVER" in os.environ:
        pytest.skip("no C compiler on this machine, or not asked for")
    assert multigrid_compiled.load_library() is not None


def test_both_solvers_have_the_same_numbers():
    source = Path(multigrid.__file__).with_name("multigrid.c")
    given = dict(re.findall(r"^#define ([A-Z_]+) ([0-9.]+)f?\b", source.read_text(), re.MULTILINE))
    names = "PRE POST COARSE_DAMPING OVERCORRECTION VISIT_ONCE SAFETY FIRST_RATE LEAST_RATE STEP_SHARE ROUNDING_LIMIT"
    expected = {name: getattr(multigrid_torch, f"_{name}") for name in names.split()}
    assert {name: ast.literal_eval(given[name]) for name in expected} == expected


@pytest.fixture
def unbuilt(monkeypatch):
    """An installation whose build had no compiler."""
    multigrid_compiled.load_library.cache_clear()
    monkeypatch.delenv("TWINLENS_SOLVER", raising=False)
    monkeypatch.setattr(multigrid_compiled, "find_spec", lambda name: None)
    yield
    multigrid_compiled.load_library.cache_clear()


def test_without_the_compiled_solver_torch_computes_and_one_line_says_so(unbuilt, caplog):
    images, keep = random_batch(4, 40, 44)
    values = [solve(images, keep).values for _ in range(2)]
    assert torch.equal(values[0], solve(images, keep, method="torch").values)
    assert torch.equal(values[0], values[1])
    assert [record.getMessage() for record in caplog.records] == [
        "Linear imputation runs without its compiled solver, about ten times as slowly (this installation has none). "
        "Install a C compiler, such as gcc, and then twinlens again."
    ]


def test_a_library_that_is_none_or_another_one_is_not_used(unbuilt, monkeypatch, caplog, tmp_path):
    (tmp_path / "broken.so").write_bytes(b"not a library")
    for origin, reason in ((str(tmp_path / "broken.so"), "broken.so: "), (sys.executable, "undefined symbol|PIE|dyn")):
        monkeypatch.setattr(multigrid_compiled, "find_spec", lambda name, o=origin: type("Spec", (), {"origin": o}))
        multigrid_compiled.load_library.cache_clear()
        assert multigrid_compiled.load_library() is None
        assert re.search(reason, caplog.records[-1].getMessage())


def test_the_environment_can_ask_for_torch(unbuilt, monkeypatch, caplog):
    monkeypatch.setenv("TWINLENS_SOLVER", "torch")
    assert multigrid_compiled.load_library() is None
    assert caplog.records == []


def test_too_large_an_image_is_refused_by_its_shape():
    library = multigrid_compiled.load_library()
    if library is None:
        pytest.skip("nothing was compiled here")
    with pytest.raises(MemoryError, match=r"`images` of shape \(N, 3, 4194304, 4194304\) need more memory"):
        multigrid_compiled._Workspace(library, (3, 2**22, 2**22))


LARGE = """
import resource, torch
from twinlens.imputation.multigrid import solve
torch.set_num_threads(1)
image = torch.nn.functional.interpolate(torch.randn(1, 3, 32, 32), size=(1500, 1000), mode="bilinear")
keep = torch.nn.functional.interpolate(torch.rand(1, 1, 7, 7), size=(1500, 1000), mode="bilinear")[0] > 0.5
solve(image[..., :40, :40], keep[:, :40, :40].logical_or(torch.rand(1, 40, 40) > 0.5))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
solution = solve(image, keep)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024 / keep.numel(), solution.fallback.item())
"""


@pytest.mark.slow
def test_memory_grows_with_the_pixels_and_no_faster():
    if multigrid_compiled.load_library() is None:
        pytest.skip("nothing was compiled here")
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    bytes_per_pixel, fallback = done.stdout.split()
    assert fallback == "False"
    assert float(bytes_per_pixel) < 100  # 24 for the solution in float64, 12 for the result, 35 for the grids


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["false", None])
def test_the_build_succeeds_with_and_without_a_compiler(compiler, tmp_path):
    pytest.importorskip("setuptools")
    environment = os.environ | ({"CC": compiler} if compiler else {})
    if compiler is None and shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler on this machine")
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-lib",
        tmp_path,
        "--build-temp",
        tmp_path / "temp",
    ]
    root = Path(__file__).resolve().parents[2]
    subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    assert len(list(tmp_path.glob("twinlens/imputation/_multigrid*"))) == (0 if compiler else 1)
