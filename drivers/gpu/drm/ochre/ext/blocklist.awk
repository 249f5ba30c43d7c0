# SPDX-License-Identifier: GPL-2.0
#
# awk -f blocklist.awk KERNEL_BINDINGS OWN_BINDINGS: prints --blocklist-* options for bindgen that
# leave out of OWN_BINDINGS what KERNEL_BINDINGS defines too. Types, functions and variables are
# separate namespaces (drm_syncobj_create is a struct and a function).

# Notes one definition; opaque tells a type of which only the name is known.
function note(kind, name, opaque)
{
	if (name ~ /^__(BindgenBitfieldUnit|BindgenUnionField|IncompleteArrayField)/)
		return
	if (FNR == NR) {
		theirs[kind, name] = opaque
		return
	}
	if ((kind, name) in seen || !((kind, name) in theirs))
		return
	seen[kind, name] = 1
	if (theirs[kind, name] && !opaque)
		return
	print "--blocklist-" kind " " name
}

function word(s)
{
	sub(/[^A-Za-z0-9_].*/, "", s)
	return s
}

# A struct's first line below its head tells whether it is opaque.
pending != "" { note("type", pending, $0 ~ /_unused: \[u8; 0\]/); pending = "" }
/^pub (struct|union) .*\{$/ { pending = word($3) }
/^pub type / { note("type", word($3), 0) }
# An enumeration that bindgen was told to make a type of its own.
/^pub struct [A-Za-z0-9_]+\(/ { note("type", word($3), 0) }
/^pub const / { note("var", word($3), 0) }
/^unsafe extern "C" \{$/ { extern = 1 }
/^\}/ { extern = 0 }
extern && /^    pub fn / { note("function", word($3), 0) }
extern && /^    pub static / { note("var", word($3 == "mut" ? $4 : $3), 0) }
