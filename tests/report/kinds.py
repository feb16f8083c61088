"""Small runs of every kind of data but images: text, a table, signals, volumes."""

import base64

import numpy as np
import torch
from torch import nn

import twinlens as tl

QUICK = {"metrics": ["soundness_rank"], "control": "none", "resamples": 20, "batch_size": 64, "threads": 1}
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "the", "good", "##ness", "of", "films", "never", "fades", "<b>\u202ex"]
COLUMNS = tuple(f"column, {k}" for k in "abcdefghijklmnopqrstuvwxyz")


class Words(nn.Module):
    """Adds up what each token says, as classifiers of transformers are called."""

    def __init__(self, tokens=12):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(tokens, 2)

    def forward(self, input_ids, attention_mask):
        return (self.table(input_ids).tanh() * attention_mask[..., None]).sum(1)


def sentences(count=6, length=9):
    """Tokens with a class token before them, a separator behind them, and padding."""
    ids = torch.randint(4, len(WORDS), (count, length), generator=torch.manual_seed(0))
    ids[:, 0] = 1
    for k, row in enumerate(ids):
        end = length - 1 - k % 3
        row[end], row[end + 1 :] = 2, 0
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.arange(count) % 2


def text_run(out, data=None, methods=("saliency", "random"), **options):
    options = {"imputer": tl.TokenImputer(3, special=(0, 1, 2)), "tokenizer": WORDS, **QUICK, **options}
    return tl.evaluate(Words(), data or sentences(), methods, out=out, **options)


def table_run(out, columns=26, rows=6, **options):
    torch.manual_seed(0)
    values, labels = 10 * torch.randn(rows, columns), torch.arange(rows) % 2
    options = {"feature_names": COLUMNS if columns == 26 else None, **QUICK, **options}
    return tl.evaluate(nn.Linear(columns, 2), (values, labels), ["saliency", "random"], out=out, **options)


def signal_run(out, steps=40, channels=2, rows=6, **options):
    torch.manual_seed(0)
    signals, labels = torch.randn(rows, channels, steps), torch.arange(rows) % 2
    model = nn.Sequential(nn.Conv1d(channels, 4, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten())
    model.append(nn.Linear(4, 2))
    return tl.evaluate(model, (signals, labels), ["saliency", "random"], out=out, **{**QUICK, **options})


def volume_run(out, shape=(6, 5, 4), rows=4, channels=1, methods=("saliency", "random"), **options):
    torch.manual_seed(0)
    volumes, labels = torch.randn(rows, channels, *shape), torch.arange(rows) % 2
    model = nn.Sequential(nn.Conv3d(channels, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool3d(1), nn.Flatten())
    model.append(nn.Linear(4, 2))
    options = {"imputer": tl.ConstantImputer(0.0), **QUICK, **options}
    return tl.evaluate(model, (volumes, labels), methods, out=out, **options)


def unpacked(text):
    return np.frombuffer(base64.b64decode(text), np.uint8)
