"""Secrets that are recognised by their form, anywhere in a text.

Every pattern takes time in proportion to the text: a part that repeats ends where the next part
begins, or a place where it may begin is never within one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

Span = tuple[int, int]

#: A word that says that what follows it in quotes, or within a tag, is a secret.
_SAID: Final = r"(?:passw(?:or)?d|passphrase|secret|(?:api|secret)[_ -]?key)"

#: Keys that begin with a mark of their provider; the marks are no words, so few letters follow.
_MARKED: Final = (
    r"(?<![A-Za-z0-9])((?:sk-|[rs]k_(?:live|test)_|AIza|ya29\.|gh[opsur]_|github_pat_"
    r"|gl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-|xox[a-z]-|xapp-|pypi-|GOCSPX-|AKIA|ASIA)[\w.-]{7,}[\w-])"
)
_MARKS: Final = (
    *("sk-", "k_live_", "k_test_", "aiza", "ya29.", "gho_", "ghp_", "ghs_", "ghu_", "ghr_"),
    *("github_pat_", "glagent-", "glcbt-", "gldt-", "glft-", "glimt-", "gloas-", "glpat-"),
    *("glptt-", "glrt-", "glsoat-", "xox", "xapp-", "pypi-", "gocspx-", "akia", "asia"),
)
#: Marks that a sentence may have, too: what follows is long, and no word.
_NO_WORD: Final = r"(?=[A-Za-z_-]{0,100}[0-9])"
_LONG: Final = (
    r"(?<![A-Za-z0-9])("
    rf"(?:gsk_|xai-|nvapi-|pplx-|tvly-|r8_|glsa_|lin_api_|dop_v1_){_NO_WORD}[A-Za-z0-9_-]{{20,}}"
    rf"|(?:hf|npm|ntn|figd|sbp|pcsk|dckr_pat|lsv2_(?:pt|sk)|pscale_[a-z]{{2,6}}|rubygems)_{_NO_WORD}"
    r"[A-Za-z0-9_-]{20,}"
    rf"|(?:csk|NRAK|PMAK|HRKU|tskey-[a-z]{{2,9}})-{_NO_WORD}[A-Za-z0-9_-]{{20,}}"
    rf"|(?:fw|jina|secret)_(?=[A-Za-z]{{0,30}}[0-9])[A-Za-z0-9]{{22,}}"
    rf"|dp\.[a-z]{{2,5}}\.{_NO_WORD}[A-Za-z0-9]{{20,}}"
    r"|(?:key-|dapi)[0-9a-f]{32}"
    r"|AT[AC]TT3[\w=-]{20,}"
    rf"|1//0{_NO_WORD}[\w-]{{20,}}"
    r"|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}"
    rf"|hv[bsr]\.{_NO_WORD}[\w-]{{20,}}"
    r"|SG\.[\w-]{16,100}\.[\w-]{16,}"
    rf"|whsec_{_NO_WORD}[A-Za-z0-9+/]{{16,}}={{0,2}}"
    r"|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r")"
)
_LONG_MARKS: Final = (
    *("gsk_", "xai-", "nvapi-", "pplx-", "tvly-", "r8_", "glsa_", "lin_api_", "dop_v1_", "hf_"),
    *("npm_", "ntn_", "figd_", "sbp_", "pcsk_", "dckr_pat_", "lsv2_", "pscale_", "rubygems_"),
    *("csk-", "nrak-", "pmak-", "hrku-", "tskey-", "fw_", "jina_", "secret_", "dp.", "key-"),
    *("dapi", "atatt", "atctt", "1//0", ".atlasv1.", "hvb.", "hvs.", "hvr.", "sg.", "whsec_"),
    *("shpat_", "shpca_", "shppa_", "shpss_", "age-secret-key"),
)
_SAID_MARKS: Final = ("passw", "passphrase", "secret", "key")
#: Addresses that need no sign-in: knowing them is enough to post to them.
_WEBHOOK: Final = (
    r"\bhooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/([\w/-]+)"
    r"|\bdiscord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/(\d{1,25}/[\w-]+)"
    r"|\bhooks\.zapier\.com/hooks/catch/([\w/-]+)"
    r"|(?<![0-9])([0-9]{6,12}:AA[\w-]{30,})"
    r"|\b(?:webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/([\w@/-]+)"
)

#: Tools, with the option whose value is a password: a word of theirs that a text has, in small
#: letters, before it is looked for; the tool; the option.
_TOOLS: Final = (
    (" login ", r"(?:buildah|docker|helm|oc|podman|skopeo)\s[^\n]{0,60}?\blogin", "-p"),
    ("redis-cli", "redis-cli", "(?:-a|--pass)"),
    ("mongo", "mongo(?:sh|dump|restore|import|export)?", "-p"),
    ("zip", "(?:un)?zip", "-P"),
    ("ldap", r"ldap\w{3,10}", "-w"),
)
#: Commands that take a password as a word.
_COMMANDS: Final = (
    ("7z", r"\b7za?\s[^\n]{0,200}?(?<=\s)-p([^\s\"']+)"),
    ("htpasswd", r"\bhtpasswd\s-\w{0,3}b\w{0,3}\s\S{1,200}\s\S{1,200}\s([^\s]+)"),
    ("chpasswd", r"\becho\s[\"']?[\w.-]{1,60}:([^\s\"']+)[\"']?\s{0,3}\|[^\n|]{0,60}chpasswd"),
    ("requirepass", r"\brequirepass\s{1,3}[\"']?([^\s\"']+)"),
    ("masterauth", r"\bmasterauth\s{1,3}[\"']?([^\s\"']+)"),
    ("sqlplus", r"\bsqlplus\s{1,3}(?:-\w{1,9}\s)?[\w.-]{1,60}/([^\s@]+)@"),
    ("jdbc:oracle", r"jdbc:oracle:\w{1,9}:[\w.-]{1,60}/([^\s@]+)@"),
    ("vault", r"\bvault\s{1,3}login\s{1,3}(?![-\w]{1,60}=)([^\s-][^\s]{7,})"),
)

#: What a text has to have in it, in small letters, before the pattern behind it is tried; the group
#: that matched is what is cut.
_SHAPES: Final = (
    (
        ("-----begin",),
        re.compile(
            r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----|\Z))",
            re.DOTALL,
        ),
    ),
    (("eyj",), re.compile(r"(?<![A-Za-z0-9])(eyJ[\w-]{5,}(?:\.[\w-]*){0,2})", re.ASCII)),
    (_MARKS, re.compile(_MARKED, re.ASCII)),
    (_LONG_MARKS, re.compile(_LONG, re.ASCII)),
    (
        ("hooks.slack", "discord", "hooks.zapier", ":aa", "webhook.office", "outlook.office"),
        re.compile(_WEBHOOK, re.ASCII | re.IGNORECASE),
    ),
    (
        ("bearer",),
        re.compile(
            r"\bbearer\s{1,3}(?!(?:auth\w*|credentials?|error|header|realm|scheme|tokens?)\b)"
            r"([\w.~+/=-]{6,})",
            re.ASCII | re.IGNORECASE,
        ),
    ),
    (
        ("basic",),
        re.compile(r"\bbasic\s{1,3}(?=[a-z+/]*[0-9=])([\w+/=]{8,})", re.ASCII | re.IGNORECASE),
    ),
    # a password may have `/`, `?` and `#` in it; a port before a path is none
    (("@",), re.compile(r"://[^\s/?#:@]*+:(?!\d{1,5}[/?#])([^\s\"'<>]{1,400})@")),
    (("@",), re.compile(r"://[^\s/?#:@]*+:([^\s/?#]{1,400})@")),
    (("@",), re.compile(r"://([^\s/?#:@]{8,})@")),
    (_SAID_MARKS, re.compile(rf"<{_SAID}[^<>]*>([^<>]+)</", re.IGNORECASE)),
    (
        _SAID_MARKS,
        re.compile(
            rf"\b{_SAID}\s{{1,3}}(?:(?:is|was)\s{{1,3}})?"
            r"(?:[\"']([^\"'\n]+)[\"']|(?<=(?:is|as)\s)(?=[a-z_-]{0,60}[0-9])([\w!?#@$%+-]{8,}))",
            re.IGNORECASE,
        ),
    ),
    (("sshpass",), re.compile(r"\bsshpass\s{1,3}-p[ ]?[\"']?([^\s\"']+)")),
    # `mysql -pPASSWORD`, also as the words of a command that is shown as a list
    (
        ("mysql", "mariadb"),
        re.compile(
            r"\b(?:mysql|mariadb)[\w-]{0,20}[\"']?,?\s[^\n]{0,200}?(?<![\w-])-p[\"']?([^\s\"',]+)"
        ),
    ),
    *(
        (
            (mark,),
            re.compile(
                rf"\b(?:{tool})\s[^\n]{{0,200}}?(?<=\s){option}[ =]{{1,3}}[\"']?([^\s\"']+)"
            ),
        )
        for mark, tool, option in _TOOLS
    ),
    *(((mark,), re.compile(pattern)) for mark, pattern in _COMMANDS),
    (("pass:",), re.compile(r"\s-(?:pass|passin|passout)\s{1,3}[\"']?pass:([^\s\"']+)")),
    # lines of .netrc
    (("login",), re.compile(r"\blogin\s{1,3}[^\s]{1,100}\s{1,20}password\s{1,3}([^\s]+)")),
    (("set pass",), re.compile(r"\bset\s{1,3}password[^=\n]{0,100}=\s?'([^'\n]+)", re.IGNORECASE)),
    (
        ("identified",),
        re.compile(
            r"\bidentified\s{1,3}(?:with\s{1,3}\S{1,60}\s{1,3})?by\s{1,3}(?:password\s{1,3})?"
            r"(?:'([^'\n]+)|\"([^\"\n]+))",
            re.IGNORECASE,
        ),
    ),
    (
        ("key=", "sig", "credential"),
        re.compile(
            r"[?&](?:key|sig|(?:x-(?:amz|goog)-)?(?:signature|credential))=([^\s&#\"'<>)]+)",
            re.IGNORECASE,
        ),
    ),
)

#: `-u user:password`, as curl has it; also as the words of a command that is shown as a list.
_USER: Final = re.compile(
    r"(?<![\w-])(?:-[A-Za-z]{0,6}[uU]|--(?:proxy-)?user)(?:\\*[\"'],\s?|[ =]{0,3})"
    r"(?:\\*[\"'][^\s:\"']{1,200}:([^\"'\n]+)[\"']|\\*[\"']?[^\s:\"']{1,200}:([^\s\"']+))"
)
_CURL_WITHIN_CHARS: Final = 500  # characters before the option


def shapes(text: str) -> Iterator[Span]:
    """Yield where something stands in the text that looks like a secret."""
    small = text.lower()
    for marks, pattern in _SHAPES:
        if any(mark in small for mark in marks):
            for found in pattern.finditer(text):
                yield found.span(found.lastindex or 0)
    if "curl" not in small:
        return
    for found in _USER.finditer(text):
        if text.find("curl", max(0, found.start() - _CURL_WITHIN_CHARS), found.start()) >= 0:
            yield found.span(found.lastindex or 0)
