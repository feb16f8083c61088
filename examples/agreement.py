"""Language: train a small causal language model on a grammar, where the positions that decide the next word are known.

python examples/agreement.py

In "the keys near the old cabinet" the verb that follows agrees with the first noun alone, whatever stands in between.
The exact map marks that noun. The second table compares four ways to remove a token.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

import twinlens as tl

SPECIAL = ["[PAD]", "[MASK]"]
SINGULAR = ["key", "dog", "door", "boat", "bird", "lamp"]
PLURAL = [f"{noun}s" for noun in SINGULAR]
BETWEEN = ["near", "behind", "above", "beside"]
OLD = ["old", "red", "big", "new"]
VERBS = ["is", "are"]
WORDS = [*SPECIAL, "the", *SINGULAR, *PLURAL, *BETWEEN, *OLD, *VERBS]
LENGTH = 12
REMOVALS = ("mask", "pad", "delete", "mean")


class LanguageModel(nn.Module):
    """A causal transformer in the style of the transformers library."""

    def __init__(self, width: int = 48, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(WORDS))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """Return an object with the logits of every position."""
        states = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        seen = torch.ones(2 * input_ids.shape[1:], dtype=torch.bool).tril() & (attention_mask[:, None, None] > 0)
        seen = seen | torch.eye(input_ids.shape[1], dtype=torch.bool)
        for block in self.blocks:
            states = block(states, seen)
        return SimpleNamespace(logits=self.head(self.norm(states)))


class Block(nn.Module):
    """Attention and a small network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """Let each token attend to those before it that are seen."""
        parts = self.mixed(self.first(states)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, attn_mask=seen)
        states = states + self.out(attended.transpose(1, 2).flatten(2))
        return states + self.inner(self.second(states))


def sentences(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Generate prompts in the form of a tokenizer's output, the ids of the verbs that follow, and the exact maps."""
    draw = torch.Generator().manual_seed(seed)

    def pick(some: list[str]) -> str:
        return some[int(torch.randint(len(some), (1,), generator=draw))]

    ids, verbs = torch.zeros(count, LENGTH, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    exact = torch.zeros(count, LENGTH)
    for sample in range(count):
        plural = bool(torch.rand(1, generator=draw) < 0.5)
        text = ["the", *([pick(OLD)] if torch.rand(1, generator=draw) < 0.5 else [])]
        exact[sample, len(text)] = 1
        text.append(pick(PLURAL if plural else SINGULAR))
        for _ in range(int(torch.randint(1, 3, (1,), generator=draw))):
            text += [pick(BETWEEN), "the", *([pick(OLD)] if torch.rand(1, generator=draw) < 0.5 else [])]
            text.append(pick(SINGULAR + PLURAL))
        ids[sample, : len(text)] = torch.tensor([WORDS.index(word) for word in text])
        verbs[sample] = WORDS.index(VERBS[plural])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}, verbs, exact


def train(steps: int = 400) -> tl.probing.NextToken:
    """Train on prompts with a random share of masked words; the network learns what a mask is."""
    torch.manual_seed(0)
    model = tl.probing.NextToken(LanguageModel())
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        tokens, verbs, _ = sentences(64, seed=step + 1)
        ids, seen = tokens["input_ids"], tokens["attention_mask"]
        masked = (torch.rand(ids.shape) < torch.rand(len(ids), 1) / 2) & (seen > 0)
        packed = torch.stack([torch.where(masked, WORDS.index("[MASK]"), ids), seen], dim=1)
        loss = functional.cross_entropy(model(packed), verbs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Print how sound and how complete each explanation is, and how far that depends on the removal of tokens."""
    tokens, verbs, exact = sentences(200, seed=0)
    model, methods = train(), ["integrated_gradients", "attention_rollout", "attn_lrp", "occlusion", "random"]
    tables = {}
    for removal in REMOVALS:
        imputer = tl.TokenImputer(WORDS.index("[MASK]"), special=(0, 1), removal=removal)
        found = tl.evaluate(
            model,
            (tokens, verbs),
            methods,
            maps={"exact": exact},
            metrics="headline",
            imputer=imputer,
            tokenizer=WORDS,
            control="none",
        )
        tables[removal] = found.summary().pivot_table(index="method", columns="metric", values="value", sort=False)
        if removal == "mask":
            maps = {method: found.maps(method) for method in found.methods}
            first = {
                name: float((each.argmax(dim=1) == exact.argmax(dim=1)).double().mean()) for name, each in maps.items()
            }
            share = {name: float(((each * exact).sum(dim=1) / each.sum(dim=1)).mean()) for name, each in maps.items()}
            tables[removal] = tables[removal].assign(
                subject_first=tables[removal].index.map(first), share_on_subject=tables[removal].index.map(share)
            )
            print(found.title, tables[removal].round(3).to_string(), sep="\n\n", end="\n\n")
    soundness = {removal: table["soundness_rank"] for removal, table in tables.items()}
    print(
        "Soundness by removal", (next(iter(tables.values()))[[]].assign(**soundness)).round(3).to_string(), sep="\n\n"
    )


if __name__ == "__main__":
    main()
