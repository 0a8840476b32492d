// Package patch applies a described change (core section 14.4) to the content that a mirror has:
// JSON Patch (RFC 6902) or JSON Merge Patch (RFC 7396).
//
// It works on bytes. Package mirror fetches the patch, and verifies the result by its hash.
package patch

import (
	"fmt"
	"mime"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// MaxSize is the maximum size in bytes of a content or a patch. Both are in memory, several
// times over.
const MaxSize = 2 << 20

// Supported reports whether patches of a media type can be applied.
func Supported(mediaType string) bool { return applier(mediaType) != nil }

// Apply returns the content that results from a patch. Only a hash can show that the source has
// the same: it may have patched another version, or may format the JSON in another way.
func Apply(mediaType string, content, patch []byte) ([]byte, error) {
	apply := applier(mediaType)
	if apply == nil {
		return nil, fmt.Errorf("unsupported type of patch %q", mediaType)
	}
	if len(content) > MaxSize || len(patch) > MaxSize {
		return nil, fmt.Errorf("content and patch: want at most %d bytes each", MaxSize)
	}
	return apply(content, patch)
}

// applier returns the function that applies patches of a media type, or nil. The examples of the
// standard use the name that JSON Patch had as a draft.
func applier(mediaType string) func(content, patch []byte) ([]byte, error) {
	t, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return nil
	}
	switch t {
	case "application/json-patch+json", "application/json-patch":
		return applyJSONPatch
	case "application/merge-patch+json":
		return jsonpatch.MergePatch
	}
	return nil
}

// applyJSONPatch applies a JSON Patch. It limits copying: a few operations that copy the whole
// document into itself would fill the memory.
func applyJSONPatch(content, patch []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("parse JSON Patch: %w", err)
	}
	o := jsonpatch.NewApplyOptions()
	o.AccumulatedCopySizeLimit = MaxSize
	o.EscapeHTML = false
	return p.ApplyWithOptions(content, o)
}
