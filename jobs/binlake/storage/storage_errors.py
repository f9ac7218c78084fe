"""Failures of the lake's storage, and of Spark's work on it: the cause as one line, and the remedy."""

from __future__ import annotations

import re

from binlake.errors import LakeError
from binlake.storage import java_errors

FREE = "free space on the lake's disk, then run again: nothing is lost"
ALLOW = "make the lake's folder writable for this account, then run again: nothing is lost"
EITHER = "free space on the lake's disk, or make its folder writable for this account; then run again: nothing is lost"
BUCKET = (
    "make the bucket (on Azure the container), or let lake.path in the YAML name one that is there; then run again: "
    "nothing is lost"
)
ACCOUNT = (
    "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the profile or role; on Azure AZURE_STORAGE_ACCOUNT_KEY "
    "or the identity), and that the account may list, read, "
    "write and delete below lake.path; then run again: nothing is lost"
)
REACH = (
    "check AWS_ENDPOINT_URL and AWS_REGION (on Azure AZURE_STORAGE_ENDPOINT, of HDFS lake.path and HADOOP_CONF_DIR) "
    "and the network, then run again: nothing is lost"
)
MEMORY = (
    "give Spark more memory: spark.driver_memory in the YAML (executor_memory on a cluster), or BINLAKE_DRIVER_MEMORY; "
    "then run again: nothing is lost"
)
OTHER = "fix what the message names, then run again: nothing is lost"

UNLINK = "put the folder itself in the symbolic link's place, then run again: nothing is lost"

_FULL = ("no space left", "quota exceeded", "file too large")
_FORBIDDEN = (
    "read-only file system", "permission denied", "operation not permitted", "access denied", "not a directory",
)  # fmt: skip
_NO_BUCKET = ("nosuchbucket", "no_such_bucket", "bucket does not exist", "unknownstoreexception",
    "containernotfound", "container does not exist", "filesystemnotfound",
)  # fmt: skip
_NO_ACCOUNT = (
    "403 forbidden", "status code: 403", "signaturedoesnotmatch", "signature_does_not_match", "invalidaccesskeyid",
    "aws error access_denied", "necessary privileges", "load credentials", "credentials provider", "noawscredentials",
    "401 unauthorized", "authenticationfailed", "authorizationfailure", "authorizationpermission", ", 403, ",
    "status code: 401", "request signature",
)  # fmt: skip
_UNREACHED = (
    "client error (connect)", "network_connection", "connection refused", "could not connect", "unknownhost",
    "could not resolve", "connect timed out", "connectexception", "connecttimeout",
    "error sending request",
)  # fmt: skip
_SPENT = ("outofmemoryerror", "java heap space", "gc overhead limit", "sparkoutofmemory")
_EITHER = ("mkdirs failed", "cannot create")
"""Hadoop doesn't say why a folder can't be made."""
_LINKED = ("is a symbolic link",)
_OF_STORAGE = re.compile(r"java\.n?io\.|org\.apache\.hadoop\.|.*IOException$")
_ANSWER = re.compile(r"<\?xml.*?<Code>(.*?)</Code>\s*<Message>(.*?)</Message>.*?(?:</Error>|\Z)", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"^\s*0: ", re.MULTILINE)


def failed(doing: str, error: BaseException) -> LakeError:
    """Return the LakeError for a storage's or Spark's error. doing: what was tried, with the path."""
    cause = cause_of(error)
    return LakeError(f"{doing}: {cause}", remedy=remedy_of(cause))


def remedy_of(cause: str) -> str:
    """Return what to do about a failure, by the words of its cause."""
    text = cause.lower()
    for signs, remedy in (
        (_LINKED, UNLINK),
        (_NO_BUCKET, BUCKET),
        (_NO_ACCOUNT, ACCOUNT),
        (_UNREACHED, REACH),
        (_FULL, FREE),
        (_FORBIDDEN, ALLOW),
        (_EITHER, EITHER),
        (_SPENT, MEMORY),
    ):
        if any(sign in text for sign in signs):
            return remedy
    return OTHER


def cause_of(error: BaseException) -> str:
    """Return an error's cause as one line. Of Java's causes it is the last one about storage, else the last one."""
    chain = java_errors.causes(error)
    if not chain:
        return _one_line(str(error)) or type(error).__name__
    for cause in reversed(chain):
        if _OF_STORAGE.match(cause.kind) and cause.message:
            return f"{cause.kind.rpartition('.')[2]}: {_one_line(cause.message)}"
    return java_errors.root_cause(chain)


def is_cause(error: BaseException) -> bool:
    """Return whether Java's error says that the storage is full or can't be written."""
    text = messages(error).lower()
    return any(sign in text for sign in (*_FULL, *_FORBIDDEN, *_EITHER))


def is_already_there(error: BaseException) -> bool:
    """Return whether Java refused to overwrite a file."""
    return any(cause.kind.endswith(".FileAlreadyExistsException") for cause in java_errors.causes(error))


def messages(error: BaseException) -> str:
    """Return all messages of Java's causes, to search them for a path; they may hold values of rows."""
    return "\n".join(cause.message for cause in java_errors.causes(error))


def _one_line(text: str) -> str:
    """Return an error's text as one line, without colours, a backtrace, and the request that an S3 server quotes."""
    plain = _BACKTRACE.split(_COLOUR.sub("", text).replace("↳", ""))[0]
    # An S3 server's answer also quotes the request that it refuses, with its signature.
    plain = _ANSWER.sub(r"\1: \2", plain)
    return ": ".join(line.strip() for line in plain.splitlines() if line.strip())
