"""Text: train a small transformer, and measure how far explanations of it can be trusted.

python examples/text.py

Sentences are made up. One word in each decides whether it praises or complains, and "not" before it turns that around.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

import twinlens as tl

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
GOOD, BAD = ["good", "great", "lovely", "superb", "fine"], ["bad", "awful", "boring", "weak", "dull"]
OTHER = ["the", "a", "film", "plot", "actor", "music", "was", "seemed", "felt", "and", "with", "very"]
OTHER += ["rather", "quite", "its", "first", "last", "scene", "story", "end"]
WORDS = [*SPECIAL, "not", *GOOD, *BAD, *OTHER]
LENGTH = 14
COLUMNS = ["method", "metric", "value", "low", "high", "skill"]


class Transformer(nn.Module):
    """A classifier in the style of the transformers library."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """Return an object with logits."""
        states = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        states = self.encoder(states, src_key_padding_mask=attention_mask == 0)
        return SimpleNamespace(logits=self.head(states[:, 0]))


def sentences(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Generate sentences in the form of a tokenizer's output, and whether they praise."""
    draw = torch.Generator().manual_seed(seed)

    def pick(some: list[str]) -> str:
        return some[int(torch.randint(len(some), (1,), generator=draw))]

    ids, labels = torch.zeros(count, LENGTH, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    for sample in range(count):
        text = [pick(OTHER) for _ in range(int(torch.randint(5, LENGTH - 3, (1,), generator=draw)))]
        praises, turned = (bool(torch.rand(1, generator=draw) < share) for share in (0.5, 0.3))
        place = int(torch.randint(len(text), (1,), generator=draw))
        text[place:place] = [*(["not"] if turned else []), pick(GOOD if praises else BAD)]
        tokens = ["[CLS]", *text[: LENGTH - 2], "[SEP]"]
        ids[sample, : len(tokens)] = torch.tensor([WORDS.index(word) for word in tokens])
        labels[sample] = praises != turned
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}, labels


def train(steps: int = 500) -> Transformer:
    """Train on sentences with a random share of masked words; the network learns what a mask is."""
    torch.manual_seed(0)
    model = Transformer()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        tokens, labels = sentences(64, seed=step + 1)
        ids = tokens["input_ids"]
        masked = (torch.rand(ids.shape) < torch.rand(len(ids), 1)) & (ids >= len(SPECIAL))
        tokens["input_ids"] = torch.where(masked, WORDS.index("[MASK]"), ids)
        loss = nn.functional.cross_entropy(model(**tokens).logits, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def leave_one_out(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """Measure what the logit loses with each word; `tokens` (N, 2, T) are ids and attention mask."""

    def logits(tokens: Tensor) -> Tensor:
        return model(tokens).logits.gather(1, targets[:, None])

    lost = []
    with torch.no_grad():
        whole = logits(tokens)
        for place in range(tokens.shape[2]):
            without = tokens.clone()
            without[:, 0, place] = WORDS.index("[MASK]")
            lost.append(whole - logits(without))
    return torch.cat(lost, dim=1).clamp(min=0)


def main() -> None:
    """Print how sound and how complete each explanation is, and what it marks in one sentence."""
    tokens, labels = sentences(200, seed=0)
    evaluation = tl.evaluate(
        train(),
        (tokens, labels),
        {
            "leave_one_out": leave_one_out,
            "integrated_gradients": "integrated_gradients",
            "saliency": "saliency",
            "random": "random",
        },
        metrics="headline",
        imputer=tl.TokenImputer(WORDS.index("[MASK]"), special=tuple(WORDS.index(word) for word in SPECIAL)),
    )
    print(evaluation.title)
    print(evaluation.summary()[COLUMNS].round(3).to_string(index=False), end="\n\n")
    words = [WORDS[k] for k in tokens["input_ids"][3] if k]
    for method in evaluation.methods:
        values = evaluation.maps(method)[3]
        shares = (values / values.max()).tolist()[: len(words)]
        marked = [f"{word}({share:.1f})" if share > 0.2 else word for word, share in zip(words, shares, strict=True)]
        print(f"{method:22}{' '.join(marked)}")


if __name__ == "__main__":
    main()
