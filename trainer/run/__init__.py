"""Training runs from their configuration files.

::

    run = prepare("run.toml")   # or prepare(load_config(…), progress=…)
    run.train()                 # what `rubricsvc runs start run.toml` does; resume=True continues
    run.evaluate()              # the baselines of [eval]
    run.report()                # metrics, evaluations, samples, alarms: from the record in the database

The database, or the service that has the judge, holds the record of a run. Its folder holds checkpoints and a copy of
the metrics, which a resumed run continues from.
"""

from trainer.run.inputs import Progress
from trainer.run.run import Run, TrainedRun, prepare

__all__ = ["Progress", "Run", "TrainedRun", "prepare"]
