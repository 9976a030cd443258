"""Array types of this room.

Letters: K rewards of the run, M of them in one QP, R columns of a Gram factor.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]
