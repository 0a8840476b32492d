// Package patch makes the new content of a resource from the old one and a patch. A patch of JSON
// says nothing of white space, so the new content is written as the old one was.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// ErrStyle means that a content is no JSON, or is not written in a way that is known here.
var ErrStyle = errors.New("it is not known how the content is written")

// Applies reports whether Apply knows patches of a media type, which has no parameters.
func Applies(mediaType string) bool {
	return mediaType == "application/json-patch+json" || mediaType == "application/json-patch" // the latter is what ResourceSync names
}

// A Content is one that can be patched.
type Content struct {
	text  []byte
	style style
}

// Of returns a content that can be patched. It keeps the text. The error is ErrStyle.
func Of(text []byte) (*Content, error) {
	c := &Content{text, styleOf(text)}
	if c.style == nil {
		return nil, ErrStyle
	}
	return c, nil
}

// Apply applies a JSON Patch (RFC 6902) and returns the new content. What copies add is at most as
// many bytes as most. The result is a guess: white space may have changed, too.
func (c *Content) Apply(patch []byte, most int64) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	o := jsonpatch.NewApplyOptions()
	o.SupportNegativeIndices, o.AccumulatedCopySizeLimit, o.EscapeHTML = false, most, false
	made, err := operations.ApplyWithOptions(c.text, o)
	if err != nil {
		return nil, err
	}
	return c.style(made), nil
}

// A style is a way to write JSON: it makes it of JSON without white space.
type style func(compact []byte) []byte

// styleOf returns the style in which a text is written, with the line break at its end; nil: it is
// none that is known. A patch says nothing of white space, so the new content is taken to have the
// style of the old one.
func styleOf(text []byte) style {
	var compact bytes.Buffer
	if json.Compact(&compact, text) != nil {
		return nil
	}
	end := text[len(bytes.TrimRight(text, " \t\r\n")):]
	for _, s := range []style{
		func(compact []byte) []byte { return compact },
		spaced,
		indented("  "), indented("    "), indented("\t"), indented(" "),
	} {
		if bytes.Equal(append(s(compact.Bytes()), end...), text) {
			return func(compact []byte) []byte { return append(s(compact), end...) }
		}
	}
	return nil
}

func indented(by string) style {
	return func(compact []byte) []byte {
		var b bytes.Buffer
		_ = json.Indent(&b, compact, "", by) // it is JSON
		return b.Bytes()
	}
}

// spaced is how Python writes JSON: a space behind each comma and each colon. The text of JSON has
// no line break within a string.
func spaced(compact []byte) []byte {
	lines := indented("")(compact)
	return bytes.ReplaceAll(bytes.ReplaceAll(lines, []byte(",\n"), []byte(", ")), []byte("\n"), nil)
}
