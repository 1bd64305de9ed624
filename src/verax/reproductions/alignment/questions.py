"""What each experiment asks, apart from the experiments, so that they can be listed without loading them."""

from __future__ import annotations

QUESTIONS = {
    "alignment-mnist": "Digit or colour box?",
    "alignment-stamps": "Animal or stamp?",
    "alignment-celeba": "Smile or hair colour?",
    "alignment-regions": "Which region of a face?",
    "alignment-transfer": "Do aligned networks transfer?",
    "alignment-imagenet": "Do networks look where people do?",
}
