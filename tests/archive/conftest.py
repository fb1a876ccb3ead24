"""Where the tests of the archive keep one."""

from support.archive_places import gs_query as gs_query
from support.archive_places import place as place
from support.archive_places import s3_query as s3_query
