"""Attention rollout, gradient-weighted attention and AttnLRP: by hand, and on timm's and torchvision's ViT."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import twinlens as tl
from tests.attribution.planted import density, small_cnn, trace
from twinlens.attribution.harness import make_request, undisturbed
from twinlens.attribution.lrp import relevance_of
from twinlens.attribution.transformers import attn_composite

timm = pytest.importorskip("timm", exc_type=ImportError)
torchvision = pytest.importorskip("torchvision", exc_type=ImportError)

METHODS = ("attention_rollout", "gradient_attention", "attn_lrp")


def shaken(model):
    """Fresh weights hide mistakes: biases, class tokens and scales are zero or one, and attention is flat."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def of_timm(**options):
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    return shaken(timm.models.vision_transformer.VisionTransformer(**sizes | options))


def of_torchvision():
    torch.manual_seed(0)
    return shaken(
        torchvision.models.VisionTransformer(
            image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=48, num_classes=5
        )
    )


def distilled():
    torch.manual_seed(0)
    return shaken(
        timm.models.deit.VisionTransformerDistilled(
            img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5
        )
    )


class Encoder(nn.Module):
    """A transformer of `nn.TransformerEncoder`, whose layers have a fast path that shows nothing of their attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.head = nn.Conv2d(3, 24, 8, 8), nn.Linear(24, 5)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 24)), nn.Parameter(torch.zeros(1, 17, 24))
        layer = nn.TransformerEncoderLayer(24, 3, 48, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x).flatten(2).transpose(1, 2)], dim=1)
        return self.head(self.layers(x + self.places)[:, 0])


VITS = {
    "torch": lambda: shaken(Encoder()),
    "timm": of_timm,
    "torchvision": of_torchvision,
    "average": functools.partial(of_timm, global_pool="avg", class_token=False),
    "registers": functools.partial(of_timm, reg_tokens=4),
    "distilled": distilled,
    "attention pooling": functools.partial(of_timm, global_pool="map", class_token=False),
    "normalised keys": functools.partial(of_timm, qk_norm=True, init_values=0.5),
    "not square": functools.partial(of_timm, img_size=(32, 16)),
}


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def fitting(images, name):
    return images[..., :16] if name == "not square" else images


@pytest.mark.parametrize("name", VITS)
@pytest.mark.parametrize("options", [(0.0, 0.0, False), (0.05, 0.25, False), (0.05, 0.25, True)])
def test_relevance_is_conserved_within_one_percent(images, name, options):
    model, images = VITS[name](), fitting(images, name)
    request = make_request(model, images, [0, 1, 2], ids=None, seed=0)
    gamma, patches, constant = options
    with undisturbed(model):
        arrived, kept, logits = relevance_of(
            model, request, attn_composite(gamma, patches, 1e-6, constant_softmax=constant), check=True
        )
        own = model(images)[range(3), range(3)]
    torch.testing.assert_close(logits, own, rtol=1e-4, atol=1e-5)
    off = (arrived.flatten(1).sum(dim=1) + kept - logits).abs()
    assert (off <= 0.01 * logits.abs()).all()
    assert arrived.abs().amax() > 0


class Block(nn.Module):
    """One block of a transformer on rows of tokens, written out: every step has its formula in AttnLRP's paper."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.embed, self.norm = nn.Linear(3, 4, bias=False), nn.LayerNorm(4, bias=False)
        self.query, self.key, self.value = (nn.Linear(4, 4, bias=False) for _ in range(3))
        self.head = nn.Linear(4, 2, bias=False)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        tokens = self.embed(x.transpose(1, 2))
        y = self.norm(tokens)
        mixed = F.scaled_dot_product_attention(*(part(y)[:, None] for part in (self.query, self.key, self.value)))
        return self.head(F.gelu(tokens + mixed[:, 0]).mean(dim=1))


def by_hand(model, x):
    """Relevance (tokens, 3) of one row, in steps of relevance and not of gradients, as the paper writes its rules."""

    def linear(layer, a, b, relevance):
        return a * ((relevance / b) @ layer.weight)

    tokens = model.embed(x)
    spread = (tokens.var(dim=1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    centred = tokens - tokens.mean(dim=1, keepdim=True)
    y = centred / spread * model.norm.weight
    q, k, v = (part(y) for part in (model.query, model.key, model.value))
    scores = q @ k.T / 2
    attention = scores.softmax(dim=1)
    mixed = attention @ v
    summed = tokens + mixed
    active = F.gelu(summed)
    pooled = active.mean(dim=0)
    logit = model.head(pooled)[0]
    relevance = pooled * model.head.weight[0]  # of the pooled values, which sum to the logit
    relevance = active / len(x) / pooled * relevance  # of all tokens; GELU passes it on
    on_tokens, on_mixed = tokens / summed * relevance, mixed / summed * relevance
    share = on_mixed / (2 * mixed)
    on_attention, on_v = attention * (share @ v.T), v * (attention.T @ share)
    on_scores = scores * (on_attention - attention * on_attention.sum(dim=1, keepdim=True))
    share = on_scores / (2 * scores)
    on_q, on_k = q * (share @ k) / 2, k * (share.T @ q) / 2
    on_y = linear(model.query, y, q, on_q) + linear(model.key, y, k, on_k) + linear(model.value, y, v, on_v)
    share = on_y / centred
    on_tokens = on_tokens + tokens * (share - share.mean(dim=1, keepdim=True))
    return linear(model.embed, x, tokens, on_tokens), logit


def test_attn_lrp_is_the_hand_computation():
    model = Block().double()
    inputs = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    request = make_request(model, inputs, [0, 0], ids=None, seed=0)
    with undisturbed(model):
        arrived, _, logits = relevance_of(model, request, attn_composite(0.0, 0.0, 1e-12), check=True)
        for one, row, logit in zip(arrived, inputs, logits, strict=True):
            expected, own = by_hand(model, row.T)
            torch.testing.assert_close(logit, own)
            torch.testing.assert_close(one, expected.sum(dim=1), rtol=1e-6, atol=1e-9)


def attention_of(model, images, targets):
    """Attention and its gradients, of timm's ViT without fused attention, seen by hooks on its dropout."""
    kept = []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _, __, out: kept.append(out))
    logits = model(images.requires_grad_())
    gradients = torch.autograd.grad(logits[range(len(images)), targets].sum(), kept)
    return [one.detach() for one in kept], gradients


@pytest.mark.parametrize("name", ["timm", "registers", "average", "not square"])
def test_rollout_and_gradient_attention_are_the_hand_computations(images, name):
    images, targets = fitting(images, name), [0, 1, 2]
    attention, gradients = attention_of(VITS[name](), images.clone(), targets)
    tokens = attention[0].shape[-1]
    rolled = related = torch.eye(tokens)
    for weights, gradient in zip(attention, gradients, strict=True):
        half = weights.mean(dim=1) + torch.eye(tokens)
        rolled = (half / half.sum(dim=2, keepdim=True)) @ rolled
        related = related + (weights * gradient).clamp(min=0).mean(dim=1) @ related
    grid = (4, 2) if name == "not square" else (4, 4)
    patches = grid[0] * grid[1]
    for method, flow in (("attention_rollout", rolled), ("gradient_attention", related)):
        read = flow.mean(dim=1) if name == "average" else flow[:, 0]
        expected = F.interpolate(
            read[:, None, tokens - patches :].unflatten(2, grid), size=images.shape[2:], mode="bilinear"
        )[:, 0]
        maps = tl.attribute(VITS[name](), images, targets, method)
        torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-6)


def test_torchvision_and_timm_give_the_same_maps_of_the_same_network(images):
    """Their attention is computed in different ways; copied weights make it the same network."""
    theirs, ours = of_torchvision(), of_timm(mlp_ratio=2.0)
    state = theirs.state_dict()
    own = {"cls_token": state["class_token"], "pos_embed": state["encoder.pos_embedding"]}
    pairs = {"patch_embed.proj": "conv_proj", "norm": "encoder.ln", "head": "heads.head"}
    for i in range(2):
        pairs |= {
            f"blocks.{i}.norm1": f"encoder.layers.encoder_layer_{i}.ln_1",
            f"blocks.{i}.norm2": f"encoder.layers.encoder_layer_{i}.ln_2",
            f"blocks.{i}.attn.proj": f"encoder.layers.encoder_layer_{i}.self_attention.out_proj",
            f"blocks.{i}.mlp.fc1": f"encoder.layers.encoder_layer_{i}.mlp.0",
            f"blocks.{i}.mlp.fc2": f"encoder.layers.encoder_layer_{i}.mlp.3",
        }
        layer = f"encoder.layers.encoder_layer_{i}.self_attention.in_proj_"
        own |= {f"blocks.{i}.attn.qkv.{part}": state[layer + part] for part in ("weight", "bias")}
    own |= {f"{a}.{part}": state[f"{b}.{part}"] for a, b in pairs.items() for part in ("weight", "bias")}
    ours.load_state_dict(own)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-5)
    for method in METHODS:
        maps = tl.attribute(theirs, images, [0, 1, 2], method)
        assert maps.amax() > 0
        torch.testing.assert_close(maps, tl.attribute(ours, images, [0, 1, 2], method), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["timm", "torchvision", "torch"])
def test_neither_batch_size_nor_order_changes_a_map_and_the_model_is_left_alone(images, name, method):
    model, targets = VITS[name]().train(), torch.tensor([0, 1, 2])
    before, fused = trace(model), F.scaled_dot_product_attention
    maps = tl.attribute(model, images, targets, method)
    assert maps.shape == (3, 32, 32)
    assert maps.amin() >= 0
    again = tl.attribute(model, images[[2, 0, 1]], targets[[2, 0, 1]], method, batch_size=2)
    torch.testing.assert_close(again, maps[[2, 0, 1]], rtol=1e-4, atol=1e-6)
    assert trace(model) == before
    assert F.scaled_dot_product_attention is fused


def test_rollout_is_the_same_for_every_class_and_gradient_attention_is_not(images):
    model = of_timm()
    maps = {name: [tl.attribute(model, images, [k] * 3, name) for k in (0, 3)] for name in METHODS}
    assert torch.equal(*maps["attention_rollout"])
    assert not torch.allclose(*maps["gradient_attention"])
    assert not torch.allclose(*maps["attn_lrp"])


def test_models_without_attention_between_all_patches_are_refused(images):
    for method in METHODS[:2]:
        with pytest.raises(ValueError, match=f"must have attention between all patches for {method}.* gradcam or lrp"):
            tl.attribute(small_cnn(), images, [0, 1, 2], method)
    torch.manual_seed(0)
    windows = timm.models.swin_transformer.SwinTransformer(
        img_size=32, patch_size=4, window_size=4, embed_dim=12, depths=(1, 1), num_heads=(2, 2), num_classes=5
    )
    with pytest.raises(ValueError, match=r"attends within windows or at several scales\. Use attn_lrp"):
        tl.attribute(windows, images, [0, 1, 2], "attention_rollout")
    assert tl.attribute(windows, images, [0, 1, 2], "attn_lrp").amax() > 0
    with pytest.raises(ValueError, match="`softmax` must be one of expansion, constant; got 'none'"):
        tl.attribute(of_timm(), images, [0, 1, 2], "attn_lrp", softmax="none")


def planted_cells(count, seed):
    """Noise (count, 1, 16, 16) with stripes in one of its 4 × 4 cells, their direction as class, and where they are."""
    g = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.randn(count, 1, 16, 16, generator=g)
    classes, cells = torch.randint(0, 2, (count,), generator=g), torch.randint(0, 16, (count,), generator=g)
    inside = F.one_hot(cells, 16).reshape(-1, 4, 4).repeat_interleave(4, 1).repeat_interleave(4, 2).bool()
    bands = (-1.0) ** torch.arange(16).div(2, rounding_mode="floor")
    stripes = torch.stack([bands[:, None].expand(16, 16), bands.expand(16, 16)])[classes]
    return images + (1.5 * stripes * inside)[:, None], classes, inside


@functools.cache
def planted_transformer():
    """A small ViT that tells the direction of the stripes, wherever they are."""
    torch.manual_seed(0)
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=16, patch_size=4, in_chans=1, embed_dim=16, depth=2, num_heads=2, num_classes=2
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(120):
        images, classes, _ = planted_cells(64, 1000 + step)
        optimizer.zero_grad()
        F.cross_entropy(model(images), classes).backward()
        optimizer.step()
    optimizer.zero_grad()
    images, classes, _ = planted_cells(200, 7)
    assert (model.eval()(images).argmax(dim=1) == classes).float().mean() > 0.97
    return model


@pytest.mark.parametrize(("method", "least"), [("attention_rollout", 1.5), ("gradient_attention", 4), ("attn_lrp", 8)])
def test_maps_lie_on_the_planted_cell(method, least):
    images, classes, inside = planted_cells(24, 3)
    maps = tl.attribute(planted_transformer(), images, classes, method)
    assert density(maps, inside).mean() > least  # of 16 at most
