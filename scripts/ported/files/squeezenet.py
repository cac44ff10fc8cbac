"""torchvision's SqueezeNet: concatenated branches, pooling, initial values."""

from ..file import File, image

FILE = File(
    name="squeezenet",
    source="torchvision.models.squeezenet",
    edits={"package": {"@register_model()\n": ""}},
    make=lambda models: models.SqueezeNet("1_1", num_classes=5, dropout=0.2),
    inputs=(image(32),),
)
