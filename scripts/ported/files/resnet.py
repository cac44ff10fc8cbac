"""torchvision's ResNet: convolutions, batch norm, shortcuts."""

from ..file import File, image

FILE = File(
    name="resnet",
    source="torchvision.models.resnet",
    edits={
        "package": {"@register_model()\n": ""},  # torchvision has them already
    },
    make=lambda models: models.ResNet(models.BasicBlock, [1, 1, 1, 1], num_classes=5),
    inputs=(image(32),),
)
