"""How far a network withstands an adversary, before and after training against one, on a small scale.

python benchmarks/robustness.py                       cnn3 on simple-fr: 300 steps of 64 pictures
python benchmarks/robustness.py --task complex-cr1 --batch 32 --steps 600 --more 450
python benchmarks/robustness.py --stored              what the store has of both, without training

All but the sizes are those of the recipe, on fresh scenes. The first line says how far apart pictures of
different labels are: an eps of half of that can make one out of both. The attack has 40 iterations from each
of two starts, with smaller strides than that of training.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch

import verax
from verax.networks.attacks import pgd
from verax.networks.inference import predictions
from verax.networks.names import Name, parse
from verax.networks.recipes import find_recipe
from verax.networks.trained import Start

STRENGTHS = (0.05, 0.1, 0.3)


def least_distance(task, n=50):
    """The least largest difference of a value between pictures of different labels."""
    cases = task.cases(n=n)
    pictures = cases.inputs.flatten(1)
    ones = pictures[cases.targets == 1]
    others = pictures[cases.targets != 1]
    return min(float((others - one).abs().amax(1).min()) for one in ones)


def clean_accuracy(model, task, n=50):
    """The share of clean pictures that is right."""
    cases = task.cases(n=n, seed=76)
    return round(float((predictions(model, cases.inputs) == cases.targets).double().mean()), 3)


def attacked_accuracies(model, task, n, iterations, starts):
    """The share that stays right under attacks from several starts, by eps."""
    cases = task.cases(n=n, seed=77)
    chance = torch.Generator().manual_seed(0)
    found = dict.fromkeys(STRENGTHS, 0)
    for rows in torch.split(torch.arange(len(cases)), 64):
        pictures, labels = cases.inputs[rows], cases.targets[rows]
        for eps in STRENGTHS:
            right = torch.ones(len(rows), dtype=torch.bool)
            for _ in range(starts):
                start = torch.rand(pictures.shape, generator=chance) * 2 - 1
                # as the recipe with ten iterations; with more of them, smaller strides
                stride = eps / 3 * min(1.0, 10 / iterations)
                worse = pgd(model, pictures, labels, start, eps, step=stride, iterations=iterations)
                with torch.no_grad():
                    right &= model(worse).argmax(1) == labels
            found[eps] += int(right.sum())
    return {eps: round(count / len(cases), 3) for eps, count in found.items()}


def main() -> None:
    """Measure a plain network, train a robust one from it, and measure that."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", default="simple-fr")
    parser.add_argument("--network", default="cnn", help="architecture")
    parser.add_argument("--recipe", default="robust")
    parser.add_argument("--renderer", default="published")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--more", type=int, default=0, help="steps of a second cycle, without a ramp")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8, help="attacked in each bucket")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--stored", action="store_true", help="measure stored networks, train nothing")
    chosen = parser.parse_args()
    task = verax.task(f"textbox/{chosen.task}", renderer=chosen.renderer)
    architecture = parse(chosen.network).on(task).architecture
    print(f"{task.name}: least distance between labels {least_distance(task):.3f}", flush=True)

    def show(name, model):
        found = attacked_accuracies(model, task, chosen.samples, chosen.iterations, chosen.starts)
        words = " ".join(f"eps {eps}: {share}" for eps, share in found.items())
        print(f"{name} clean: {clean_accuracy(model, task)} {words}", flush=True)

    robust = str(Name(architecture, chosen.recipe))
    plain = str(Name(architecture, "published"))
    origin = Start(plain, task.network(plain))
    show(origin.name, origin.model)
    if chosen.stored:
        show(robust, task.network(robust))
        return
    groups = task.groups  # named, though all of them: then there is no certificate, which takes minutes
    plan = replace(find_recipe(chosen.recipe), batch=chosen.batch, epochs=1, repeat=False)
    for steps, ramp in ((chosen.steps, plan.ramp), (chosen.more, 0.0)):
        if not steps:
            continue
        scenes = -(-steps * chosen.batch // len(groups))
        plan = replace(plan, scenes=scenes, ramp=ramp)
        begun = time.perf_counter()
        done = verax.train(
            task, architecture, recipe=plan, start=origin, groups=groups, device="cpu", quiet=True
        )
        print(f"{plan}\nstart: {done.start}; {time.perf_counter() - begun:.0f} s", flush=True)
        show(robust, done.model)
        origin = Start(robust, done.model)


if __name__ == "__main__":
    main()
