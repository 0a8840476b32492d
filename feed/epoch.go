package feed

import (
	"strconv"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// Epochs says which epoch each closed Change List of a log belongs to. A log whose
// newest entries were lost, or whose copy goes on beside it, fills the same list
// twice, with different entries. So it begins a new epoch, and the lists that were
// open then get another name: a name never means two different lists.
//
// The text has FROM-NAME for each epoch, in order and separated by spaces. FROM is
// the number of the first list of the epoch, NAME a random word. Lists before the
// first FROM are of epoch 0, which has no name. The zero value has epoch 0 only.
type Epochs string

// ParseEpochs reads the text form. An error is a *resourcesync.Error with ErrInvalid.
func ParseEpochs(text string) (Epochs, error) {
	last := uint64(0)
	for word := range strings.FieldsSeq(text) {
		from, name, ok := cutEpoch(word)
		if !ok || from <= last || name == "" || strings.ContainsFunc(name, func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') }) {
			return "", resourcesync.Invalid("%q does not say which epochs there are", resourcesync.Shorten(text))
		}
		last = from
	}
	return Epochs(text), nil
}

func cutEpoch(word string) (from uint64, name string, ok bool) {
	number, name, ok := strings.Cut(word, "-")
	from, err := strconv.ParseUint(number, 10, 64)
	return from, name, ok && err == nil
}

// Of returns the name of the epoch of a list; of epoch 0, the empty string.
func (e Epochs) Of(list uint64) (name string) {
	for word := range strings.FieldsSeq(string(e)) {
		from, of, _ := cutEpoch(word)
		if from > list {
			break
		}
		name = of
	}
	return name
}

// Begin returns e with one more epoch: it has a name, and begins with the list from.
// oldest is the oldest list that is kept: epochs without a list from there on are
// left out.
func (e Epochs) Begin(name string, from, oldest uint64) Epochs {
	var words []string
	for word := range strings.FieldsSeq(string(e)) {
		if first, _, _ := cutEpoch(word); first < from {
			words = append(words, word)
		}
	}
	words = append(words, strconv.FormatUint(from, 10)+"-"+name)
	for len(words) > 1 {
		if next, _, _ := cutEpoch(words[1]); next > oldest {
			break
		}
		words = words[1:]
	}
	return Epochs(strings.Join(words, " "))
}
