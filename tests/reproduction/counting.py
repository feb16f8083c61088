"""An experiment that takes no time."""

from twinlens.reproduction import Claim, Experiment, Outcome


def draw(figure):
    figure.subplots().plot([0, 1], [0, 1])


class Calls:
    """An experiment that counts how often it is done."""

    def __init__(self, *, fails=False, title="It <works>", claim="Water & wine"):
        self.count, self.fails, self.claim = 0, fails, claim
        self.experiment = Experiment(title=title, source="Fig. 0", run=self.run, stand_in="wine < water")

    def run(self, options, progress):
        self.count += 1
        progress.begin({"working": 1})
        progress.advance("working", 1)
        if self.fails:
            raise ValueError("<b>no luck</b>")
        claims = [
            Claim(
                text=f"{self.claim} {k}",
                source="Fig. 0a",
                measured="0.5",
                verdict=verdict,
                ours=k > 2,
                reason="so & so" * k,
            )
            for k, verdict in enumerate(("holds", "does not hold", "open", "by construction"))
        ]
        return Outcome(numbers={"seed": options.seed}, claims=tuple(claims), figures={"second": draw, "first": draw})
