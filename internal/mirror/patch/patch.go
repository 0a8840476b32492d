// Package patch applies a described change (core section 14.4) to the content that a mirror has:
// JSON Patch (RFC 6902) or JSON Merge Patch (RFC 7396).
//
// It works on bytes. Package mirror gets the patch, and verifies the result by its hash.
package patch

import (
	"fmt"
	"mime"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// Most is the size in bytes up to which a content or a patch is worth it: both are in memory,
// several times over.
const Most = 2 << 20

// Known reports whether patches of a media type can be applied.
func Known(mediaType string) bool { return applies(mediaType) != nil }

// Apply returns the content that a patch makes of another one. Nothing but a hash can show that it
// is what the source has: the source may have been at another version, or may write the same JSON
// in another way.
func Apply(mediaType string, content, patch []byte) ([]byte, error) {
	apply := applies(mediaType)
	if apply == nil {
		return nil, fmt.Errorf("nobody here knows how a patch of the type %q is applied", mediaType)
	}
	if len(content) > Most || len(patch) > Most {
		return nil, fmt.Errorf("the content or its patch has more than %d bytes", Most)
	}
	return apply(content, patch)
}

// applies returns what applies patches of a media type. The examples of the standard have the
// name that JSON Patch had as a draft.
func applies(mediaType string) func(content, patch []byte) ([]byte, error) {
	t, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return nil
	}
	switch t {
	case "application/json-patch+json", "application/json-patch":
		return operations
	case "application/merge-patch+json":
		return jsonpatch.MergePatch
	}
	return nil
}

// operations applies a JSON Patch. What it copies is bounded: a few operations that copy the whole
// into itself would fill the memory.
func operations(content, patch []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("read a JSON Patch: %w", err)
	}
	o := jsonpatch.NewApplyOptions()
	o.AccumulatedCopySizeLimit = Most
	o.EscapeHTML = false
	return p.ApplyWithOptions(content, o)
}
