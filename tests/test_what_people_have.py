"""Models and data as people have them, in the lines that they would write."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import twinlens as tl

QUICK = {"metrics": ["soundness_rank", "completeness"], "resamples": 50, "threads": 1, "batch_size": 64}


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(12, 3, 8, 8, generator=torch.manual_seed(0))


@pytest.fixture(scope="module")
def labels() -> torch.Tensor:
    return torch.arange(12) % 4


@pytest.fixture(scope="module")
def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 4)).eval()


@pytest.fixture(scope="module")
def by_arrays(cnn, images, labels) -> pd.DataFrame:
    return tl.evaluate(cnn, (images, labels), ["saliency"], **QUICK).summary()


# Data


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_data_sets_and_loaders_are_read_as_arrays_are(cnn, images, labels, by_arrays, shuffle):
    dataset = TensorDataset(images, labels)
    for data in (dataset, DataLoader(dataset, batch_size=5, shuffle=shuffle)):
        assert tl.evaluate(cnn, data, ["saliency"], **QUICK).summary().equals(by_arrays)


def test_a_loader_with_a_collate_of_its_own_is_read_once(cnn, images, labels, by_arrays):
    seen = []

    def halved(items):
        seen.append(len(items))
        return {
            "pixel_values": torch.stack([x for x, _ in items]) / 2,
            "labels": torch.tensor([int(y) for _, y in items]),
        }

    dataset = TensorDataset(images * 2, labels)
    found = tl.evaluate(cnn, DataLoader(dataset, batch_size=5, collate_fn=halved), ["saliency"], **QUICK).summary()
    assert found.equals(by_arrays)
    assert seen == [5, 5, 2]
    with pytest.raises(
        tl.DataError, match=r"`data` is a loader that shuffles and has its own collate_fn.*Pass shuffle=False"
    ):
        tl.evaluate(cnn, DataLoader(dataset, collate_fn=halved, shuffle=True), ["saliency"], **QUICK)


@pytest.mark.slow
def test_a_stream_is_read_once(cnn, images, labels, by_arrays):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(images, labels, strict=True))

    for data in (Stream(), DataLoader(Stream(), batch_size=5)):
        assert tl.evaluate(cnn, data, ["saliency"], **QUICK).summary().equals(by_arrays)


class Folder(Dataset):
    """Images of Pillow, as a data set of torchvision without a transform yields them."""

    def __init__(self, targets=None) -> None:
        self.classes = ["cat", "dog"]
        self.reads: list[int] = []
        if targets is not None:
            self.targets = targets

    def __len__(self) -> int:
        return 6

    def __getitem__(self, k: int):
        self.reads.append(k)
        pixels = np.random.default_rng(k).integers(256, size=(10, 12, 3), dtype=np.uint8)
        return Image.fromarray(pixels), k % 2


def test_images_of_a_data_set_go_through_the_preprocessing(cnn):
    model = nn.Sequential(cnn, nn.Linear(4, 2))
    found = tl.evaluate(model, Folder(), ["saliency"], preprocessing={"resize": 9, "crop": 8}, **QUICK)
    assert found.results.data.shape == (3, 8, 8)
    assert found.results.model.classes == ("cat", "dog")
    assert found.ids() == ("00000", "00001", "00002", "00003", "00004", "00005")


def test_a_data_set_that_lists_its_labels_is_not_read_for_them(cnn):
    model, listed = nn.Sequential(cnn, nn.Linear(4, 2)), Folder(targets=[0, 1, 0, 1, 0, 1])
    tl.evaluate(model, listed, ["saliency"], preprocessing={"resize": 9, "crop": 8}, limit=2, **QUICK)
    drawn = set(listed.reads) - {0, 1, 2}  # the first are read twice, to see that they stay the same
    assert len(drawn) <= 2
    wrong = Folder(targets=[0, 1, 0, 0, 0, 1])
    with pytest.raises(tl.DataError, match="'00003' has label 1, and `targets` of the data set has 0"):
        tl.evaluate(model, wrong, ["saliency"], preprocessing={"resize": 9, "crop": 8}, **QUICK)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (lambda k: (torch.rand(3, 8, 8), 0), "another input each time that sample '00000' is read"),
        (lambda k: torch.ones(3, 8, 8), "must yield an input and a label"),
        (lambda k: {"picture": 1, "kind": 2}, r"sample '00000' is dict of \['kind', 'picture'\]"),
        (lambda k: (torch.ones(3, 8, 8), torch.ones(4)), "Labels of `data` must be one number each.*'00000'"),
        (lambda k: (torch.ones(3, 8, 8).long(), 0), "must be floating-point.*sample '00000' is int64"),
        (lambda k: (Image.new("RGBA", (8, 8)), 0), "mode L or RGB; it is RGBA"),
        (lambda k: 1 / 0, "sample 00000' cannot be read: division by zero"),
    ],
)
def test_data_sets_that_cannot_be_used_are_refused(cnn, item, message):
    class Odd(Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, k: int):
            return item(k)

    with pytest.raises(tl.DataError, match=message):
        tl.evaluate(cnn, Odd(), ["saliency"], **QUICK)


def test_tensors_of_8_bits_are_images_with_the_channels_first(cnn):
    pixels = torch.randint(256, (6, 3, 8, 8), generator=torch.manual_seed(0)).to(torch.uint8)
    labels = torch.arange(6) % 4
    dataset = TensorDataset(pixels, labels)
    found = tl.evaluate(cnn, dataset, ["saliency"], **QUICK).summary()
    assert found.equals(tl.evaluate(cnn, (pixels.permute(0, 2, 3, 1), labels), ["saliency"], **QUICK).summary())


# Models


def test_a_function_on_tensors(cnn, images, labels, by_arrays):
    found = tl.evaluate(cnn.forward, (images, labels), ["saliency"], **QUICK)
    assert found.summary().equals(by_arrays)


def test_an_estimator_with_classes_that_have_names():
    x, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, names)
    found = tl.evaluate(pipeline, (x[::4], names[::4]), ["kernel_shap", "random"], **QUICK)
    assert found.results.accuracy == pytest.approx(pipeline.score(x[::4], names[::4]))
    assert found.results.model.classes == ("barbera", "barolo", "grignolino")
    best = found.summary().query("metric == 'soundness_rank'").set_index("method")
    assert best["skill_low"]["kernel_shap"] > 0 > best["skill_low"]["random"]
    probabilities = found.curve("random", "completeness").table.probability[:, 0]
    own = pipeline.predict_proba(x[::4].astype(np.float32))
    assert np.allclose(probabilities, own[np.arange(len(own)), np.searchsorted(pipeline.classes_, names[::4])])
    with pytest.raises(tl.DataError, match=r"classes that `model` was fitted to, 'barbera', .* at 0 is 'merlot'"):
        tl.evaluate(pipeline, (x[:2], ["merlot", "barolo"]), ["random"], **QUICK)


def test_labels_of_a_data_set_are_those_that_an_estimator_was_fitted_to():
    x, y = load_wine(return_X_y=True)
    forest = RandomForestClassifier(5, random_state=0).fit(x, y + 1)  # classes 1, 2, 3
    dataset = TensorDataset(torch.tensor(x[::4]).float(), torch.tensor(y[::4] + 1))
    for data in (dataset, tl.data.from_arrays(x[::4], y[::4] + 1), (x[::4], y[::4] + 1)):
        found = tl.evaluate(forest, data, ["random"], **QUICK)
        assert found.results.accuracy == pytest.approx(forest.score(x[::4], y[::4] + 1))


def test_an_estimator_that_was_fitted_to_a_data_frame(recwarn):
    x, y = load_wine(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(5, random_state=0).fit(x, y)
    found = tl.evaluate(forest, (x[:30], y[:30]), ["random"], **QUICK)
    assert found.results.accuracy == pytest.approx(forest.score(x[:30], y[:30]))
    assert not [w for w in recwarn if "feature names" in str(w.message)]


def test_decisions_are_logits_and_methods_of_an_estimator_are_estimators():
    x, y = load_wine(return_X_y=True)
    scaled, two = StandardScaler().fit_transform(x)[:100], y[:100] % 2
    machine = LinearSVC(random_state=0).fit(scaled, two)
    found = tl.evaluate(machine, (scaled, two), ["random"], **QUICK)
    assert found.results.accuracy == pytest.approx(machine.score(scaled, two))
    assert found.results.model.output == "one logit"
    forest = RandomForestClassifier(5, random_state=0).fit(scaled, two)
    whole, method = (tl.evaluate(model, (scaled, two), ["random"], **QUICK) for model in (forest, forest.predict_proba))
    assert whole.summary().equals(method.summary())


def test_another_estimator_is_another_run(tmp_path):
    x, y = load_wine(return_X_y=True)
    forests = [RandomForestClassifier(3, random_state=seed).fit(x, y) for seed in (0, 0, 1)]
    for forest in forests[:2]:
        tl.evaluate(forest, (x[:20], y[:20]), ["random"], out=tmp_path, **QUICK)
    with pytest.raises(tl.RunError, match=r"holds another run: model\.digest"):
        tl.evaluate(forests[2], (x[:20], y[:20]), ["random"], out=tmp_path, **QUICK)
    wrapped = [
        tl.evaluate(lambda rows, f=f: f.predict_proba(rows), (x[:20], y[:20]), ["random"], **QUICK) for f in forests
    ]
    same, again, other = (found.results.model.digest for found in wrapped)
    assert same == again != other


def test_methods_that_need_gradients_say_so():
    x, y = load_wine(return_X_y=True)
    forest = RandomForestClassifier(3, random_state=0).fit(x, y)
    reason = r"has no gradients, which this method needs\. Choose one that only calls"
    with pytest.raises(tl.RunError, match=reason), pytest.warns(match="saliency fails"):
        tl.evaluate(forest, (x[:20], y[:20]), ["saliency"], **QUICK)
    with pytest.warns(match="saliency fails"):
        partly = tl.evaluate(forest, (x[:20], y[:20]), ["saliency", "random"], **QUICK)
    assert partly.methods == ["random"]
    assert list(partly.failures) == ["saliency"]
    assert "saliency is incomplete" in partly.notes[0]
    assert "has no gradients" in partly.summary().attrs["warnings"][0]
    with pytest.raises(tl.RunError, match=reason), pytest.warns(match="saliency fails"):
        tl.evaluate(forest, (x[:20], y[:20]), ["saliency", "random"], strict=True, **QUICK)


def test_what_is_reused_is_said(cnn, images, labels, tmp_path, caplog):
    def brightness(model, inputs, targets):
        return inputs.mean(dim=1)

    caplog.set_level("INFO", logger="twinlens")
    for _ in range(2):
        tl.evaluate(cnn, (images, labels), {"brightness": brightness}, out=tmp_path / "run", **QUICK)
    said = [record.getMessage() for record in caplog.records]
    assert "Reused" not in said[0]
    assert str(tmp_path / "run") in said[0]
    assert "Reused maps of brightness." in said[2]
    assert (tmp_path / "run" / "report.html").exists()


def test_regression():
    x, y = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(x, y)
    found = tl.evaluate(model, (x[::8], y[::8]), ["kernel_shap", "random"], performance="r2", **QUICK)
    assert found.results.quality == {"R²": pytest.approx(model.score(x[::8], y[::8]), abs=1e-5)}
    assert "R² 0." in found.title
    best = found.summary().query("metric == 'soundness_rank'").set_index("method")
    assert best["value"]["kernel_shap"] > 0.9  # the model is linear, and the map its exact contributions
    assert best["skill_low"]["kernel_shap"] > 0
    with pytest.raises(ValueError, match=r"r2, neg_mse, score for a regression model.*labels are floating-point"):
        tl.evaluate(model, (x[::8], y[::8]), ["random"], **QUICK)


def test_regression_by_a_network_with_a_report(tmp_path):
    torch.manual_seed(0)
    x = torch.rand(20, 5)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    found = tl.evaluate(
        network, (x, x.sum(dim=1)), ["integrated_gradients"], performance="score", out=tmp_path / "run", **QUICK
    )
    page = tl.write_report([found], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The model says" in page
    assert '"answer": "predicted"' in page or '"answer":"predicted"' in page


def test_labels_that_are_values_for_a_classifier_are_refused(cnn, images, labels):
    with pytest.raises(
        tl.DataError, match=r"floating-point labels, which mean regression.*convert the labels to integers"
    ):
        tl.evaluate(cnn, (images, labels.float()), ["saliency"], performance="score", **QUICK)


class Detector(nn.Module):
    """Returns what is neither a tensor nor logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x):
        return {"boxes": x.mean(dim=(2, 3)), "scores": [self.network(x)]}


@pytest.mark.slow
def test_any_score(cnn, images):
    def second(answer):
        return answer["scores"][0][:, 2]

    methods = ["integrated_gradients", "gradcam", "random"]
    found = tl.evaluate(Detector(cnn), (images, None), methods, target=second, performance="score", **QUICK)
    values = cnn(images)[:, 2].detach().double().numpy()
    assert found.results.quality == {"mean score": pytest.approx(values.mean(), abs=1e-5)}
    maps = tl.attribute(cnn, images, [2] * 12, "integrated_gradients", ids=found.ids())
    assert torch.allclose(found.maps("integrated_gradients"), maps, atol=1e-5)
    direct = tl.completeness(Detector(cnn), images, [0] * 12, maps, target=second, performance="score", ids=found.ids())
    assert np.allclose(found.curve("integrated_gradients", "completeness").values, direct.values, atol=1e-5)


def test_another_score_is_another_run(cnn, images, tmp_path):
    for column in (0, 0):
        tl.evaluate(
            cnn,
            (images, None),
            ["random"],
            target=lambda a, c=column: a[:, c],
            performance="score",
            out=tmp_path,
            **QUICK,
        )
    with pytest.raises(tl.RunError, match=r"holds another run: model\.target"):
        tl.evaluate(
            cnn, (images, None), ["random"], target=lambda a: a[:, 1], performance="score", out=tmp_path, **QUICK
        )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda answer: answer, "`target` must return one score for each of 1 inputs.*returned shape"),
        (lambda answer: 1.0, "`target` must return one score.*returned float"),
        (lambda answer: answer.missing, "`target` raised AttributeError"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(cnn, images, target, message):
    with pytest.raises(ValueError, match=message):
        tl.evaluate(cnn, (images, None), ["random"], target=target, performance="score", **QUICK)


def test_several_labels_at_once(cnn, images, labels):
    found = tl.evaluate(cnn, (images, labels), ["saliency"], output="multi_label", **QUICK)
    logit = cnn(images).gather(1, labels[:, None])[:, 0].detach()
    table = found.curve("saliency", "completeness").table
    assert np.allclose(table.probability[:, 0], logit.sigmoid(), atol=1e-5)
    assert found.results.accuracy == pytest.approx((logit > 0).double().mean().item())
    assert set(table.predicted[:, 0][logit.numpy() <= 0]) <= {-1}


def test_captum_with_one_logit():
    captum = pytest.importorskip("captum.attr")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x, y = torch.randn(16, 4), torch.arange(16) % 2
    methods = {"captum": captum.InputXGradient(model), "ours": "input_x_gradient"}
    found = tl.evaluate(model, (x, y), methods, **QUICK)
    assert torch.allclose(found.maps("captum"), found.maps("ours"), atol=1e-6)
