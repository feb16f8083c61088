"""The part of the build that pyproject.toml cannot say: the solver in C, without which the package works as well."""

from setuptools import Extension, setup

FOLDER = "src/twinlens/imputation"

setup(
    ext_modules=[
        Extension(
            "twinlens.imputation._multigrid",
            [f"{FOLDER}/multigrid.c"],
            depends=[
                f"{FOLDER}/{name}.h"
                for name in (
                    "multigrid_coarse",
                    "multigrid_coarse_volume",
                    "multigrid_finest",
                    "multigrid_finest_volume",
                    "noise",
                )
            ],
            # No -march=native and no -ffast-math: wheels travel, and the solver has to see NaN.
            # No debug information: it names the folder of the build, and one source would make many wheels.
            extra_compile_args=["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"],
            optional=True,  # where there is no compiler, the torch path does the work
            py_limited_api=True,  # it knows nothing of Python, so that one wheel serves all versions
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
