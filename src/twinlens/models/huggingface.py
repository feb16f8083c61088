"""Models of transformers, from a directory of `save_pretrained`, the local cache or the Hugging Face hub.

Weights are read from safetensors only, and code that comes with a model is never run.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from twinlens.errors import DataError, ModelError, first_line
from twinlens.models.packages import import_package
from twinlens.models.preprocessing import INTERPOLATIONS, Preprocessing
from twinlens.probing.tokens import NextToken, TokenModel

_TASKS = {
    "SequenceClassification": "SEQUENCE_CLASSIFICATION",
    "ImageClassification": "IMAGE_CLASSIFICATION",
    "CausalLM": "CAUSAL_LM",
}
"""The kinds of models that can be loaded: the end of their auto class, and their name in lists of transformers."""
_NO_CONTENT = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
_NO_LIMIT = 10**9  # tokens; tokenizers without a limit name larger ones


class Checkpoint:
    """A model of transformers by its directory or its name on the hub."""

    def __init__(self, name: str, spec: str) -> None:
        if not name:
            raise ModelError(f"`model` {spec!r} must name a directory of save_pretrained, or a model: hf:DIR_OR_NAME.")
        self.library: Any = import_package("transformers", "hf")
        self.name, self.spec, self.local = name, spec, True
        looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
        if os.path.isdir(name):
            if not Path(name, "config.json").is_file():
                raise ModelError(f"`model` {spec!r}: the directory has no config.json. Write it with save_pretrained.")
            if Path(name, "adapter_config.json").exists():
                raise ModelError(
                    f"`model` {spec!r} has an adapter beside its weights, which changes what it answers. Merge it with "
                    "merge_and_unload(), and save the model again."
                )
        elif looks_like_path:
            raise ModelError(f"`model` {spec!r}: there is no directory {name!r}.")
        self.config = self._read_config()
        if getattr(self.config, "quantization_config", None) is not None:
            raise ModelError(
                f"`model` {spec!r} is quantised, and what computes with its weights may be fetched as code. Load it in "
                "your own FILE.py:FUNCTION."
            )
        # A configuration can name implementations on the hub, which would be code.
        self.config._attn_implementation = self.config._experts_implementation = None
        self.task = self._find_task()

    def _read_config(self) -> Any:
        """Read the configuration from the directory or the cache; only then from the hub."""
        try:
            return self.load("AutoConfig")
        except ModelError:
            if os.path.isdir(self.name):
                raise
        self.local = False
        return self.load("AutoConfig")

    def load(self, kind: str, **options: Any) -> Any:
        """Load a part of the model by its auto class, without running code of others."""
        try:
            with _quiet(self.library):
                return getattr(self.library, kind).from_pretrained(
                    self.name, local_files_only=self.local, trust_remote_code=False, **options
                )
        except Exception as error:
            raise ModelError(f"`model` {self.spec!r} {self._explain(error)}") from error

    def _explain(self, error: Exception) -> str:
        text = str(error)
        if "safetensors" in text:
            return (
                "has no weights as safetensors, and other files may hold code. Save it again with "
                f"model.save_pretrained(DIR). ({first_line(error)})"
            )
        if "trust_remote_code" in text:
            return "needs code that comes with it, which is never run. Load it in your own FILE.py:FUNCTION."
        if isinstance(error, OSError) and not os.path.isdir(self.name):
            return (
                "is neither a directory nor in the local cache, and the Hugging Face hub has no such model or cannot "
                "be reached. Check the name; offline, pass a directory that was written by save_pretrained."
            )
        return f"cannot be loaded by transformers: {type(error).__name__}: {first_line(error)}"

    def _find_task(self) -> str:
        lists: Any = import_package("transformers.models.auto.modeling_auto", "hf")
        classes = [str(name) for name in getattr(self.config, "architectures", None) or ()]
        for task, key in _TASKS.items():
            if set(classes) & set(getattr(lists, f"MODEL_FOR_{key}_MAPPING_NAMES").values()):
                return task
        raise ModelError(
            f"`model` {self.spec!r} must be for sequence classification, image classification or causal language "
            f"modelling; it is {' or '.join(classes) or 'of no known class'}. Load it in your own FILE.py:FUNCTION."
        )

    def module(self, pretrained: bool) -> nn.Module:
        """Return the network in float32, with its weights or with random ones."""
        kind = f"AutoModelFor{self.task}"
        if not pretrained:
            self.config.dtype = "float32"
            return getattr(self.library, kind).from_config(self.config, trust_remote_code=False)  # type: ignore[no-any-return]
        options = {"config": copy.deepcopy(self.config), "use_safetensors": True, "dtype": "float32"}
        module, about = self.load(kind, **options, output_loading_info=True)
        missing = sorted(str(name) for name in about["missing_keys"])
        if missing:
            raise ModelError(
                f"`model` {self.spec!r} lacks weights, such as {missing[0]!r} ({len(missing)} of them), and random "
                "ones would take their place. Train it for its task, and save it then."
            )
        return module  # type: ignore[no-any-return]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes by index; None where they are only numbered."""
        return None if self.task == "CausalLM" else class_names(self.config)

    @property
    def digest(self) -> str:
        """Hash of the configuration, regardless of where it is and which version of transformers wrote it."""
        content = self.config.to_dict()
        named = {key: content[key] for key in sorted(content) if key not in _NO_CONTENT}
        return hashlib.blake2b(json.dumps(named, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()

    @property
    def scale(self) -> str:
        """What the network returns; see `LoadedModel`."""
        return scale_of(self.config)


def class_names(config: Any) -> tuple[str, ...] | None:
    """Return the names of the classes by index; None where a configuration has none, or only numbers them."""
    names = {int(index): str(name) for index, name in (getattr(config, "id2label", None) or {}).items()}
    if all(name == f"LABEL_{index}" for index, name in names.items()):
        return None
    return tuple(names.get(index, str(index)) for index in range(max(names) + 1))


def scale_of(config: Any) -> str:
    """Return what the network of a configuration returns; see `LoadedModel`."""
    several = getattr(config, "problem_type", None) == "multi_label_classification"
    return "multi_label" if several else "logits"


def load_text_model(source: Checkpoint, pretrained: bool) -> tuple[TokenModel, Any, int | None]:
    """Return a classifier or language model, its tokenizer, and the most tokens that it reads."""
    tokenizer, module = source.load("AutoTokenizer"), source.module(pretrained)
    wrapped = (NextToken if source.task == "CausalLM" else TokenModel)(module)
    return wrapped, tokenizer, most_tokens(module, tokenizer)


def most_tokens(module: nn.Module, tokenizer: Any) -> int | None:
    """Return how many tokens a network of transformers reads at most, if there is a limit."""
    limits = [int(getattr(tokenizer, "model_max_length", None) or _NO_LIMIT)]
    if positions := getattr(getattr(module, "config", None), "max_position_embeddings", None):
        # Some count positions from behind the padding's id.
        first = [
            part.padding_idx + 1
            for name, part in module.named_modules()
            if name.endswith("position_embeddings") and isinstance(part, nn.Embedding) and part.padding_idx is not None
        ]
        limits.append(int(positions) - (first[0] if first else 0))
    return min(limits) if min(limits) < _NO_LIMIT else None


def load_image_model(source: Checkpoint, pretrained: bool) -> tuple[nn.Module, Preprocessing]:
    """Return a classifier of images, and the steps of its processor."""
    return source.module(pretrained), read_processor(source.load("AutoImageProcessor"), source.spec)


def read_processor(processor: Any, spec: str) -> Preprocessing:
    """Return the steps of an image processor of transformers."""

    def refuse(what: str) -> ModelError:
        return ModelError(
            f"`model` {spec!r}: its image processor {what}, which is not supported. Load the model in your own "
            "FILE.py:FUNCTION, with inputs as it expects them."
        )

    def side(name: str) -> tuple[int, bool]:
        """Return a size in pixels, and whether it is that of both sides."""
        size = dict(getattr(processor, name, None) or {})
        size = {key: value for key, value in size.items() if value is not None}
        if {"height", "width"} <= size.keys() and size["height"] == size["width"]:
            return int(size["height"]), True
        if size.keys() == {"shortest_edge"}:
            return int(size["shortest_edge"]), False
        raise refuse(f"has the {name} {size}")

    if getattr(processor, "do_rescale", True) and abs(getattr(processor, "rescale_factor", 1 / 255) * 255 - 1) > 1e-3:
        raise refuse("does not divide pixels by 255")
    resize: int | None = None
    crop: int | None = None
    squash = False
    if getattr(processor, "do_resize", False):
        resize, squash = size = side("size")
        share = getattr(processor, "crop_pct", None)
        if share is not None and not squash:  # of ConvNeXt
            resize, crop, squash = (size[0], None, True) if size[0] >= 384 else (int(size[0] / share), size[0], False)
    if getattr(processor, "do_center_crop", False):
        crop = side("crop_size")[0]
    filters = {int(value): name for name, value in INTERPOLATIONS.items()}
    resample = int(getattr(processor, "resample", None) or 0)
    if resize is not None and resample not in filters:
        raise refuse(f"resizes with filter {resample}")
    normalises = getattr(processor, "do_normalize", False)
    return Preprocessing(
        resize=resize,
        squash=squash,
        crop=crop,
        interpolation=filters.get(resample, "bilinear"),
        mean=tuple(processor.image_mean) if normalises else (0.0, 0.0, 0.0),
        std=tuple(processor.image_std) if normalises else (1.0, 1.0, 1.0),
    )


def tokenizer_digest(tokenizer: Any) -> str:
    """Hash a tokenizer by content: its rules and vocabulary, and its special tokens."""
    rules: Callable[[], str] | None = getattr(getattr(tokenizer, "backend_tokenizer", None), "to_str", None)
    vocabulary = getattr(tokenizer, "get_vocab", dict)
    content = rules() if rules is not None else json.dumps(sorted(vocabulary().items()))
    special = sorted((str(key), str(value)) for key, value in getattr(tokenizer, "special_tokens_map", {}).items())
    return hashlib.blake2b(f"{type(tokenizer).__qualname__} {content} {special}".encode(), digest_size=16).hexdigest()


def special_tokens(tokenizer: Any) -> tuple[int, ...]:
    """Return the ids of tokens that are no words; one that only stands for unknown words is a word."""
    roles = dict(tokenizer.special_tokens_map)
    unknown = roles.pop("unk_token", None)
    words = {tokenizer.unk_token_id} if unknown not in roles.values() else set()
    return tuple(sorted(int(number) for number in {*tokenizer.all_special_ids} - words))


def token_of(word: str, tokenizer: Any) -> int:
    """Return the id of the one token that continues a text with a word."""
    for text in (f" {word}", word):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    pieces = " ".join(map(str, tokenizer.convert_ids_to_tokens(ids)))
    raise DataError(
        f"The label {word!r} must be one token, which the model can expect next; the tokenizer makes {pieces!r} of it. "
        "Choose another word, or give the id of a token."
    )


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Load without progress bars and reports; what matters in them becomes an error."""
    logging = library.utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
