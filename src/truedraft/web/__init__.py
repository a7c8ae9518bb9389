"""The lab: three pages that show how drafts are judged, what they cost, and what a run did.

The pages are plain files that work from the file system as well; this module only serves them, to this machine alone.
It refuses to know anything else of truedraft.
"""

from truedraft.web.serve import FOLDER, LabServer

__all__ = ["FOLDER", "LabServer"]
