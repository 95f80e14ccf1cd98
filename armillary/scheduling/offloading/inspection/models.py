"""Parameter counts of models that are loaded by name: from a table, or from a size in the name (7b, 350M, 8x7B).

Counts are those of the models' public cards and of torchvision's documentation, rounded.
"""

from __future__ import annotations

import re

MILLION = 1e6
#: From here on a model is heavy, or medium.
HEAVY, MEDIUM = 300 * MILLION, 10 * MILLION

#: Millions of parameters by the beginning of the last part of a name, in lower case with dashes; the longest beginning counts.
_TABLE = {
    # torchvision, Keras and timm
    "alexnet": 61.1, "vgg11": 132.9, "vgg13": 133.0, "vgg16": 138.4, "vgg19": 143.7, "resnet18": 11.7, "resnet34": 21.8, "resnet50": 25.6,
    "resnet101": 44.5, "resnet152": 60.2, "resnext50": 25.0, "resnext101": 88.8, "wide-resnet50": 68.9, "wide-resnet101": 126.9,
    "densenet121": 8.0, "densenet161": 28.7, "densenet169": 14.1, "densenet201": 20.0, "googlenet": 6.6, "inception-v3": 27.2,
    "inceptionv3": 23.9, "xception": 22.9, "squeezenet": 1.2, "mobilenet": 4.2, "mobilenet-v2": 3.5, "mobilenetv2": 3.5,
    "mobilenet-v3-small": 2.5, "mobilenet-v3-large": 5.5, "shufflenet": 2.3, "mnasnet": 4.4, "efficientnet-b0": 5.3, "efficientnet-b1": 7.8,
    "efficientnet-b2": 9.1, "efficientnet-b3": 12.2, "efficientnet-b4": 19.3, "efficientnet-b5": 30.4, "efficientnet-b6": 43.0,
    "efficientnet-b7": 66.3, "efficientnet-v2-s": 21.5, "efficientnet-v2-m": 54.1, "efficientnet-v2-l": 118.5, "efficientnetb0": 5.3,
    "efficientnetb7": 66.7, "convnext-tiny": 28.6, "convnext-small": 50.2, "convnext-base": 88.6, "convnext-large": 197.8, "swin-t": 28.3,
    "swin-s": 49.6, "swin-b": 87.8, "swin-tiny": 28.3, "swin-base": 87.8, "swin-large": 197.0, "vit-b-16": 86.6, "vit-b-32": 88.2,
    "vit-l-16": 304.3, "vit-l-32": 306.5, "vit-h-14": 632.0, "vit-base": 86.6, "vit-large": 304.4, "vit-huge": 632.0, "vit-tiny": 5.7,
    "vit-small": 22.1, "maxvit-t": 30.9, "fasterrcnn-resnet50": 41.8, "maskrcnn-resnet50": 44.4, "retinanet-resnet50": 34.0,
    "fcn-resnet50": 35.3, "deeplabv3-resnet50": 42.0, "deeplabv3-resnet101": 61.0, "yolov5s": 7.2, "yolov5x": 86.7, "yolov8n": 3.2,
    "yolov8x": 68.2,
    # Transformers and diffusers
    "bert-base": 110.0, "bert-large": 340.0, "distilbert": 66.0, "distilroberta": 82.0, "roberta-base": 125.0, "roberta-large": 355.0,
    "xlm-roberta-base": 278.0, "xlm-roberta-large": 560.0, "albert-base": 11.7, "deberta-v3-base": 184.0, "deberta-v3-large": 435.0,
    "electra-small": 13.5, "electra-base": 110.0, "gpt2": 124.0, "gpt2-medium": 355.0, "gpt2-large": 774.0, "gpt2-xl": 1558.0,
    "distilgpt2": 82.0, "gpt-neo": 1300.0, "gpt-j": 6050.0, "gpt-neox": 20_600.0, "t5-small": 60.5, "t5-base": 223.0, "t5-large": 738.0,
    "flan-t5-small": 77.0, "flan-t5-base": 248.0, "flan-t5-large": 783.0, "flan-t5-xl": 2850.0, "flan-t5-xxl": 11_300.0, "bart-base": 139.0,
    "bart-large": 406.0, "pegasus": 568.0, "whisper-tiny": 39.0, "whisper-base": 74.0, "whisper-small": 244.0, "whisper-medium": 769.0,
    "whisper-large": 1550.0, "wav2vec2-base": 95.0, "wav2vec2-large": 317.0, "clip-vit-base": 151.0, "clip-vit-large": 428.0,
    "all-minilm": 22.7, "all-mpnet-base": 109.0, "bge-small": 33.4, "bge-base": 109.0, "bge-large": 335.0, "e5-large": 335.0,
    "stable-diffusion": 1070.0, "stable-diffusion-xl": 3500.0, "stable-diffusion-3": 2000.0, "sdxl": 3500.0, "flux": 12_000.0,
    "phi-2": 2780.0, "phi-3-mini": 3820.0, "tinyllama": 1100.0, "mistral": 7240.0, "mixtral": 46_700.0, "falcon": 7200.0,
    "bloom": 176_000.0, "detr-resnet-50": 41.5, "segformer-b0": 3.8, "sam-vit-base": 93.7, "sam-vit-large": 312.0, "sam-vit-huge": 641.0,
}  # fmt: skip
#: The default models of pipelines, by task, in millions.
TASKS = {
    "sentiment-analysis": 66.0, "text-classification": 66.0, "ner": 334.0, "token-classification": 334.0, "question-answering": 65.0,
    "fill-mask": 82.0, "summarization": 306.0, "translation": 223.0, "text-generation": 124.0, "text2text-generation": 223.0,
    "zero-shot-classification": 407.0, "image-classification": 86.0, "object-detection": 41.5, "automatic-speech-recognition": 95.0,
    "feature-extraction": 66.0,
}  # fmt: skip
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bmt])(?![a-z0-9])")
_UNIT = {"m": 1e6, "b": 1e9, "t": 1e12}


def parameters_of(name: str) -> float | None:
    """Parameters of the model of this name, or None if nothing is known about it."""
    plain = re.sub(r"[_\s]+", "-", name.lower()[:200])
    found = _SIZE.search(plain)
    if found:
        return float(found[1] or 1) * float(found[2]) * _UNIT[found[3]]
    last = plain.rstrip("/").rpartition("/")[2]
    known = [start for start in _TABLE if last == start or (last.startswith(start) and not last[len(start)].isdigit())]
    return MILLION * _TABLE[max(known, key=len)] if known else None


def is_known(name: str) -> bool:
    """Whether a function of this name in a library of models makes one that is in the table."""
    return parameters_of(name) is not None


def said(parameters: float) -> str:
    """A count in words: 1.1 billion, 11.7 million."""
    return f"{parameters / 1e9:.3g} billion" if parameters >= 1e9 else f"{parameters / 1e6:.3g} million"
