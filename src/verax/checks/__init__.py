"""Conformance checks that anybody can run on a method, a metric or a task of their own.

::

    print(verax.check_method(my_method))

In the spirit of scikit-learn's `check_estimator`: each check is one property that every method, metric or
task should have, and that such code often breaks silently. A failure is one sentence.
"""

from verax.checks.base import Check, Report
from verax.checks.methods import check_method
from verax.checks.metrics import check_metric
from verax.checks.tasks import check_task

__all__ = ["Check", "Report", "check_method", "check_metric", "check_task"]
