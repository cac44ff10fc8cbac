"""mlp-mixer-pytorch: einops' layers between PyTorch's."""

from ..file import File, image

FILE = File(
    name="mlp_mixer",
    source="mlp_mixer_pytorch.mlp_mixer_pytorch",
    make=lambda models: models.MLPMixer(image_size=16, channels=3, patch_size=4, dim=16, depth=1, num_classes=5),
    inputs=(image(16),),
)
