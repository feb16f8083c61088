"""Two small transformers, one of sentences and one of a grammar, with the languages that they were trained on.

`python -m twinlens.suites.small_transformers FOLDER` trains both within a minute and writes their weights, of which
those for this package were made. They are shipped because training on another processor rounds differently.

Shapes: N sentences, T tokens, D the width of a token's state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save_file
from torch import Tensor, nn
from torch.nn import functional

from twinlens.probing.answers import find_logits
from twinlens.probing.tokens import NextToken, TokenModel

_WIDTH, _HEADS, _BLOCKS, _BATCH, _RATE = 32, 4, 2, 64, 2e-3
Draw = Callable[[float], bool]
Pick = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Language:
    """Sentences that are made up, and what a model learns of them."""

    name: str
    words: tuple[str, ...]
    """The vocabulary; the first tokens are special."""
    special: tuple[int, ...]
    """Tokens that are never removed."""
    length: int
    """Tokens of a padded sentence."""
    outputs: int
    """Number of classes."""
    causal: bool
    """Whether a token sees only those before it, and the classes are the words that may come next."""
    steps: int
    """Steps of training."""
    hidden: float
    """Largest share of words that training hides."""
    make: Callable[[Pick, Draw], tuple[list[str], int]]
    """Draws a sentence and its class."""

    @property
    def mask(self) -> int:
        """The token that hides a word."""
        return self.words.index("[MASK]")

    def sentences(self, count: int, *, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        """Draw sentences in the form of a tokenizer's output, and their classes (N,)."""
        draw = torch.Generator().manual_seed(seed)

        def pick(some: Sequence[Any]) -> Any:
            return some[int(torch.randint(len(some), (1,), generator=draw))]

        def chance(share: float) -> bool:
            return bool(torch.rand(1, generator=draw) < share)

        ids, labels = torch.zeros(count, self.length, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
        for sample in range(count):
            text, label = self.make(pick, chance)
            ids[sample, : len(text)] = torch.tensor([self.words.index(word) for word in text])
            labels[sample] = label
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}, labels


class SmallTransformer(nn.Module):
    """A transformer of two blocks, in the style of the transformers library."""

    def __init__(self, language: Language) -> None:
        super().__init__()
        self.causal = language.causal
        self.words, self.places = nn.Embedding(len(language.words), _WIDTH), nn.Embedding(language.length, _WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(_BLOCKS))
        self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, language.outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Compute logits: of every position of a causal model, of the first one otherwise."""
        tokens = input_ids.shape[1]
        states = self.words(input_ids) + self.places.weight[:tokens]
        seen = attention_mask[:, None, None] > 0
        if self.causal:
            seen = seen & torch.ones(tokens, tokens, dtype=torch.bool).tril()
        seen = seen | torch.eye(tokens, dtype=torch.bool)
        for block in self.blocks:
            states = block(states, seen)
        logits = self.head(self.norm(states))
        return {"logits": logits if self.causal else logits[:, 0]}


class _Block(nn.Module):
    """Attention and a small network, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.mixed, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.inner = nn.Sequential(nn.Linear(_WIDTH, 2 * _WIDTH), nn.ReLU(), nn.Linear(2 * _WIDTH, _WIDTH))

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """Let each token (N, T, D) attend to those that it sees."""
        parts = self.mixed(self.first(states)).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=seen)
        states = states + self.out(attended.transpose(1, 2).flatten(2))
        return states + self.inner(self.second(states))  # type: ignore[no-any-return]


_GOOD, _BAD = ("good", "great", "lovely", "superb", "fine"), ("bad", "awful", "boring", "weak", "dull")
_OTHER = (
    *("the", "a", "film", "plot", "actor", "music", "was", "seemed", "felt", "and", "with", "very", "rather"),
    *("quite", "its", "first", "last", "scene", "story", "end"),
)


def _review(pick: Pick, chance: Draw) -> tuple[list[str], int]:
    """Draw words among which one praises or complains; "not" before it turns that around."""
    text = [pick(_OTHER) for _ in range(pick(range(5, 10)))]
    praises, turned = chance(0.5), chance(0.3)
    at = pick(range(len(text)))
    text[at:at] = [*(["not"] if turned else []), pick(_GOOD if praises else _BAD)]
    return ["[CLS]", *text, "[SEP]"], int(praises != turned)


_ONE = ("key", "dog", "door", "boat", "bird", "lamp")
_MANY = tuple(f"{noun}s" for noun in _ONE)
_BETWEEN, _OLD, _VERBS = ("near", "behind", "above", "beside"), ("old", "red", "big", "new"), ("is", "are")
_GRAMMAR = ("[PAD]", "[MASK]", "the", *_ONE, *_MANY, *_BETWEEN, *_OLD, *_VERBS)


def _prompt(pick: Pick, chance: Draw) -> tuple[list[str], int]:
    """Draw a prompt whose verb agrees with the first noun, whatever stands in between."""
    many = chance(0.5)
    text = ["the", *([pick(_OLD)] if chance(0.5) else []), pick(_MANY if many else _ONE)]
    for _ in range(1 + chance(0.5)):
        text += [pick(_BETWEEN), "the", *([pick(_OLD)] if chance(0.5) else []), pick(_ONE + _MANY)]
    return text, _GRAMMAR.index(_VERBS[many])


SENTENCES = Language(
    name="sentences",
    words=("[PAD]", "[CLS]", "[SEP]", "[MASK]", "not", *_GOOD, *_BAD, *_OTHER),
    special=(0, 1, 2, 3),
    length=13,
    outputs=2,
    causal=False,
    steps=800,
    hidden=1.0,
    make=_review,
)
"""One word in a sentence decides whether it praises or complains."""

GRAMMAR = Language(
    name="grammar",
    words=_GRAMMAR,
    special=(0, 1),
    length=12,
    outputs=len(_GRAMMAR),
    causal=True,
    steps=800,
    hidden=0.5,
    make=_prompt,
)
"""In "the keys near the old cabinet" the next word agrees with the first noun."""


def load_transformer(language: Language) -> TokenModel | NextToken:
    """Return the trained transformer of a language."""
    model = SmallTransformer(language)
    content = resources.files("twinlens.suites").joinpath(f"{language.name}.safetensors").read_bytes()
    model.load_state_dict(load(content))
    return _reading_tokens(model.eval())


def _reading_tokens(model: SmallTransformer) -> TokenModel | NextToken:
    return NextToken(model) if model.causal else TokenModel(model)


def train_transformer(language: Language) -> SmallTransformer:
    """Train on sentences of which a random share of words is hidden: the network learns what a mask is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SmallTransformer(language)
        reads, optimiser = _reading_tokens(model), torch.optim.Adam(model.parameters(), lr=_RATE)
        for step in range(language.steps):
            tokens, labels = language.sentences(_BATCH, seed=step + 1)
            ids, seen = tokens["input_ids"], tokens["attention_mask"]
            words = (seen > 0) & (ids > max(language.special))
            hidden = (torch.rand(ids.shape) < language.hidden * torch.rand(len(ids), 1)) & words
            packed = torch.stack([torch.where(hidden, language.mask, ids), seen], dim=1)
            optimiser.zero_grad()
            loss: Any = functional.cross_entropy(find_logits(reads(packed))[0], labels)
            loss.backward()
            optimiser.step()
    return model.eval()


if __name__ == "__main__":
    for each in (SENTENCES, GRAMMAR):
        save_file(train_transformer(each).state_dict(), Path(sys.argv[1], f"{each.name}.safetensors"))
