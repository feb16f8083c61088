from types import SimpleNamespace

import pytest
import torch
from torch import nn

from twinlens.models import mnist_cnn
from twinlens.models.training import PAPER, Training, accuracy, retraining_seed, train
from twinlens.reproduction.networks import VGG16, ResidualBlock, SmallCNN, TinyResNet


def blobs(count=96, seed=0):
    labels = torch.arange(count) % 3
    noise = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return noise + 4 * torch.eye(3, 2)[labels], labels


def build():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_training_learns():
    inputs, labels = blobs()
    model = train(build, inputs, labels, training=Training(epochs=20, batch_size=16, rate=0.02))
    assert accuracy(model, *blobs(seed=1)) > 0.9
    assert not model.training


@pytest.mark.parametrize("schedule", ["constant", "one_cycle"])
def test_the_same_seed_gives_the_same_network_and_another_another(schedule):
    how = Training(epochs=2, batch_size=16, schedule=schedule)
    torch.manual_seed(11)
    first = weights(train(build, *blobs(), training=how, seed=3))
    torch.manual_seed(12)
    assert torch.equal(first, weights(train(build, *blobs(), training=how, seed=3)))
    assert not torch.equal(first, weights(train(build, *blobs(), training=how, seed=4)))


def test_torch_is_left_as_it_was():
    torch.manual_seed(5)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    train(build, *blobs(), training=Training(epochs=1, threads=threads + 1))
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_every_option_matters():
    usual = {"epochs": 2, "batch_size": 16, "rate": 0.01}
    changes = [{}, {"epochs": 3}, {"batch_size": 8}, {"rate": 0.02}, {"weight_decay": 0.1}, {"schedule": "one_cycle"}]
    found = {weights(train(build, *blobs(), training=Training(**(usual | change)))).sum().item() for change in changes}
    assert len(found) == len(changes)


def test_bytes_stand_for_zero_to_one():
    images = torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(24) % 2
    how = Training(epochs=1, batch_size=8)

    def network():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))

    one, other = (train(network, x, labels, training=how) for x in (images, images.float() / 255))
    assert torch.equal(weights(one), weights(other))
    assert accuracy(one, images, labels) == accuracy(one, images.float() / 255, labels)


def test_epochs_are_told():
    told = []
    train(build, *blobs(), training=Training(epochs=3), advance=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_accuracy_leaves_the_mode_alone_and_uses_evaluation():
    model = nn.Sequential(nn.Dropout(0.999), nn.Identity()).train()
    assert accuracy(model, torch.eye(2).repeat(40, 1), [0, 1] * 40) == 1.0
    assert model.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1; got 0"),
        ({"batch_size": -1}, "`batch_size` must be at least 1"),
        ({"rate": 0.0}, "`rate` must be > 0"),
        ({"weight_decay": -1e-4}, "`weight_decay` must be >= 0"),
        ({"schedule": "cosine"}, "`schedule` must be one of constant, one_cycle; got 'cosine'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Training(**options)


def test_inputs_are_checked():
    with pytest.raises(TypeError, match="`inputs` must be floating-point"):
        train(build, torch.zeros(4, 2, dtype=torch.int64), [0] * 4)
    with pytest.raises(ValueError, match="`labels` must hold one integer for each of the 4 inputs"):
        train(build, torch.zeros(4, 2), [0] * 3)


def test_labels_must_be_classes_of_the_network():
    with pytest.raises(ValueError, match=r"`labels` have class 7, and the network .* logits of shape \(4, 2\)"):
        train(lambda: nn.Linear(2, 2), torch.zeros(4, 2), [0, 1, 0, 7], training=Training(epochs=1))
    with pytest.raises(ValueError, match="`labels` must be class indices from 0; got -100"):
        train(lambda: nn.Linear(2, 2), torch.zeros(4, 2), [0, 1, 0, -100], training=Training(epochs=1))


def test_logits_may_be_a_part_of_the_answer():
    class Named(nn.Linear):
        def forward(self, x):
            return SimpleNamespace(logits=super().forward(x))

    network = train(lambda: Named(2, 3), *blobs(), training=Training(epochs=20, rate=0.05))
    assert accuracy(network, *blobs()) > 0.5


def test_seeds_of_retrainings_differ():
    assert len({retraining_seed(seed, number) for seed in range(3) for number in range(4)}) == 12


def test_the_paper_s_settings():
    assert (PAPER.epochs, PAPER.batch_size, PAPER.rate, PAPER.weight_decay) == (35, 256, 1e-3, 1e-4)
    blocks = [part for part in TinyResNet(3, 10).modules() if isinstance(part, ResidualBlock)]
    assert len(blocks) == 8
    assert sum(isinstance(part, nn.Conv2d) for part in VGG16(3, 100).modules()) == 13
    assert sum(isinstance(part, nn.Linear | nn.Conv2d) for part in VGG16(3, 100).modules()) == 15


@pytest.mark.parametrize("size", [8, 15, 28, 32])
def test_the_small_network_takes_images_of_its_size(size):
    assert SmallCNN(1, 4, size=size, width=4)(torch.zeros(2, 1, size, size)).shape == (2, 4)
    with pytest.raises(ValueError, match="`size` must be at least 8"):
        SmallCNN(1, 4, size=7)


@pytest.mark.parametrize("network", [SmallCNN, TinyResNet, VGG16])
def test_networks_return_one_logit_per_class(network):
    assert network(3, 10)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_residual_blocks_add_what_went_in():
    block = ResidualBlock(4, 4).eval()
    nn.init.zeros_(block.body[-1].weight)
    images = torch.rand(2, 4, 6, 6)
    assert torch.equal(block(images), images)


def test_the_network_of_the_demonstration_is_trained_by_the_same_recipe(monkeypatch):
    # The recipe behind the weights that come with twinlens.
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (90, 28, 28), generator=generator, dtype=torch.uint8).numpy()
    labels = (torch.arange(90) % 10).numpy()
    monkeypatch.setattr(mnist_cnn, "mnist_digits", lambda held_out: (pixels, labels))
    monkeypatch.setattr(mnist_cnn, "EPOCHS", 2)
    trained = mnist_cnn.train_cnn(seed=4)

    torch.manual_seed(4)
    expected = mnist_cnn.DigitCNN().train()
    images, targets = torch.from_numpy(pixels)[:, None].float() / 255, torch.from_numpy(labels)
    optimiser = torch.optim.Adam(expected.parameters())
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.02, total_steps=4)
    for _ in range(2):
        for batch in torch.split(torch.randperm(90), 64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(expected(images[batch]), targets[batch]).backward()
            optimiser.step()
            cycle.step()
    assert torch.allclose(weights(trained), weights(expected), atol=1e-6)


def test_what_builds_no_network_is_refused_by_its_name():
    with pytest.raises(TypeError, match=r"`build` must return an nn\.Module; it returned str"):
        train(lambda: "network", *blobs(), training=Training(epochs=1))
    with pytest.raises(ValueError, match="`build` raised TypeError"):
        train(lambda layers: layers, *blobs(), training=Training(epochs=1))
