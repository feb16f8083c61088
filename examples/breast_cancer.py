"""Two explanations of a linear model on scikit-learn's breast-cancer set: its exact contributions, and random numbers.

python examples/breast_cancer.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import twinlens as tl


def main() -> None:
    """Print soundness and completeness of both."""
    x, y = load_breast_cancer(return_X_y=True)
    train, test, train_labels, labels = train_test_split(x, y, random_state=0, test_size=0.3)
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    model = LogisticRegression().fit(train, train_labels)

    towards_label = np.where(labels == 1, 1, -1)[:, None]
    maps = {
        "exact contributions": np.clip(towards_label * model.coef_[0] * (test - train.mean(axis=0)), 0, None),
        "random numbers": np.random.default_rng(0).random(test.shape),
    }
    imputer = tl.MeanImputer(train.mean(axis=0))
    print(f"{len(test)} samples, accuracy {model.score(test, labels):.3f}\n")
    print(f"{'map':22}{'soundness':>12}{'completeness':>14}{'deletion':>10}")
    for name, values in maps.items():
        arguments = (model.predict_proba, test, labels, values)
        sound = tl.soundness(*arguments, imputer=imputer, estimator="rank")
        complete = tl.completeness(*arguments, imputer=imputer, estimator="share")
        deleted = tl.deletion(*arguments, imputer=imputer)
        print(f"{name:22}{sound.area():>12.3f}{complete.area():>14.3f}{deleted.area():>10.3f}")


if __name__ == "__main__":
    main()
