"""Small networks in float64, and the same weights in other spellings."""

import torch
import torch.nn.functional as F
from torch import nn

SPELLINGS = ("functional", "in-place", "reused", "operators")


def plain(seed=3, pool="max", norm=False):
    """Convolutions, pooling and dense layers as modules; biases everywhere, norms of both signs."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
        layers += [nn.MaxPool2d(2) if pool == "max" else nn.AvgPool2d(2)]
        layers += [nn.Conv2d(8, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten()]
        layers += [nn.Linear(12 * 3 * 3, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 5)]
        kept = [q for q in layers if norm or not isinstance(q, nn.BatchNorm1d | nn.BatchNorm2d)]
        model = nn.Sequential(*kept).double().eval()
        for q in model.modules():
            if isinstance(q, nn.Conv2d | nn.Linear):
                q.bias.data.uniform_(-0.3, 0.3)
            if isinstance(q, nn.BatchNorm1d | nn.BatchNorm2d):
                q.running_mean.uniform_(-0.3, 0.3)
                q.running_var.uniform_(0.5, 2)
                q.weight.data.uniform_(-1.5, 1.5)
                q.bias.data.uniform_(-0.3, 0.3)
    return model


class Spelled(nn.Module):
    """The weights of ``plain()``, spelled otherwise."""

    def __init__(self, model, how):
        super().__init__()
        self.c1, self.c2, self.l1, self.l2 = model[0], model[3], model[6], model[8]
        self.how, self.relu, self.over = how, nn.ReLU(), nn.ReLU(inplace=True)

    def forward(self, x):
        if self.how == "functional":
            x = F.max_pool2d(F.relu(self.c1(x)), 2)
            x = torch.relu(F.conv2d(x, self.c2.weight, self.c2.bias, stride=2)).flatten(1)
            x = F.relu(F.linear(x, self.l1.weight, self.l1.bias))
            return F.linear(x, self.l2.weight, self.l2.bias)
        if self.how == "in-place":
            x = self.c1(x)
            x.relu_()
            x = self.c2(F.max_pool2d(x, 2))
            y = x
            self.over(x)
            x = F.relu(self.l1(y.view(len(x), -1)), inplace=True)
            return self.l2(x)
        if self.how == "reused":
            x = torch.max_pool2d(self.relu(self.c1(x)), 2)
            x = self.relu(self.c2(x)).reshape(len(x), -1)
            return self.l2(self.relu(self.l1(x)))
        x = F.max_pool2d(self.c1(x).clamp(min=0), 2)
        x = torch.flatten(torch.clamp_min(self.c2(x), 0), 1)
        x = (x @ self.l1.weight.T + self.l1.bias).relu()
        x = x.matmul(self.l2.weight.t())
        x += self.l2.bias
        return x


class Between(nn.Module):
    """A function between two dense layers."""

    def __init__(self, function):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.a, self.b = nn.Linear(6, 5).double(), nn.Linear(5, 3).double()
        self.function = function

    def forward(self, x):
        return self.b(self.function(self.a(x)))


class Block(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, wide, shift=True):
        super().__init__()
        self.a, self.b = nn.Conv2d(wide, wide, 3, padding=1), nn.Conv2d(wide, wide, 3, padding=1)
        self.na, self.nb = nn.BatchNorm2d(wide), nn.BatchNorm2d(wide)

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        y = self.nb(self.b(y))
        y += x
        return F.relu(y)


def residual(bias=True):
    """A small residual network; without bias, relevance is conserved exactly."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, bias=bias), nn.ReLU(), nn.MaxPool2d(2), Block(6), Block(6)
        )
        model.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten()).append(nn.Linear(6, 4, bias=bias))
        for q in model.modules():
            if isinstance(q, nn.BatchNorm2d):
                q.running_var.uniform_(0.5, 2)
                if bias:
                    q.running_mean.uniform_(-0.3, 0.3)
                    q.bias.data.uniform_(-0.3, 0.3)
            if not bias and isinstance(q, nn.Conv2d):
                q.bias = None
    return model.double().eval()


ATTENTION = ("module", "fused", "written", "einsum")


class Attention(nn.Module):
    """The weights of `nn.MultiheadAttention` in four spellings."""

    def __init__(self, wide, heads, how):
        super().__init__()
        self.inner, self.heads, self.how = nn.MultiheadAttention(wide, heads, batch_first=True), heads, how

    def forward(self, x):
        if self.how == "module":
            return self.inner(x, x, x, need_weights=False)[0]
        samples, tokens, wide = x.shape
        packed = F.linear(x, self.inner.in_proj_weight, self.inner.in_proj_bias)
        q, k, v = packed.view(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.how == "fused":
            y = F.scaled_dot_product_attention(q, k, v)
        elif self.how == "written":
            y = F.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1) @ v
        else:
            scores = torch.einsum("nhid,nhjd->nhij", q, k) * q.shape[-1] ** -0.5
            y = torch.einsum("nhij,nhjd->nhid", scores.softmax(-1), v)
        return self.inner.out_proj(y.transpose(1, 2).reshape(samples, tokens, wide))


class Layer(nn.Module):
    """A transformer layer that normalises first."""

    def __init__(self, wide, heads, how):
        super().__init__()
        self.n1, self.n2, self.attend = nn.LayerNorm(wide), nn.LayerNorm(wide), Attention(wide, heads, how)
        self.f1, self.f2 = nn.Linear(wide, 2 * wide), nn.Linear(2 * wide, wide)

    def forward(self, x):
        x = x + self.attend(self.n1(x))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class Transformer(nn.Module):
    """A vision transformer on 16 by 16 pixels: 16 patches, with or without a class token, 5 outputs."""

    def __init__(self, how="module", bias=True, token=True, wide=24, depth=2):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(4)
            self.patches, self.head = nn.Conv2d(3, wide, 4, 4), nn.Linear(wide, 5)
            self.layers = nn.Sequential(*[Layer(wide, 4, how) for _ in range(depth)])
            self.norm, self.token = nn.LayerNorm(wide), token
            self.first = nn.Parameter(torch.randn(1, 1, wide) * bias)
            self.place = nn.Parameter(torch.randn(1, 16 + token, wide) * 0.3 * bias)
            for name, weight in self.named_parameters():
                if "bias" in name:
                    weight.data.uniform_(-0.2, 0.2).mul_(bias)
                elif "norm" in name or ".n" in name:
                    weight.data.uniform_(0.5, 1.5)
        self.double().eval()

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token:
            x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        x = self.norm(self.layers(x + self.place))
        return self.head(x[:, 0] if self.token else x.mean(1))
