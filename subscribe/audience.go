package subscribe

import (
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// An audience is the connections of a group that have the same filter.
type audience struct {
	filter feed.Filter
	conns  []*conn // the live ones, and those that were detached since the last delivery

	wanted []int // scratch, if it asks for words: the indexes of a batch's entries that have one of them
}

// audiences are all audiences of a group. From a change it finds those that want it,
// without a look at the others. That is good for many followers with filters of their
// own: what one of them wants costs nothing for the rest.
//
// It goes by the prefixes of the filters, which it keeps in order. Of all prefixes of a
// text, each but the shortest begins with the next shorter one, its parent. The last
// prefix that does not come after the text begins with all of them.
//
// Of the audiences with one prefix, it finds those that ask for words by the words of the
// change.
type audiences struct {
	byKey    map[string]*audience // by feed.Filter.Key
	prefixes []*prefix            // in order

	words []word // scratch: the words of a change
}

// A word is a tag of a change, or the relation type of at least one of its links.
type word struct {
	rel  bool
	text string
}

// A prefix is a prefix that at least one audience asks for.
type prefix struct {
	text      string
	parent    *prefix              // the longest other one that text begins with; nil: there is none
	audiences []*audience          // those that do not ask for words
	words     map[word][]*audience // the others, by each word that they ask for; nil: there is none

	wanted []int // scratch: the indexes of a batch's entries that begin with text
}

// of returns the audience with a filter, and makes it if need be.
func (all *audiences) of(f feed.Filter) *audience {
	key := f.Key()
	a := all.byKey[key]
	if a == nil {
		if all.byKey == nil {
			all.byKey = map[string]*audience{}
		}
		a = &audience{filter: f}
		all.byKey[key] = a
		all.prefix(f.Prefix).add(a)
	}
	return a
}

// remove takes out an audience.
func (all *audiences) remove(a *audience) {
	delete(all.byKey, a.filter.Key())
	i, _ := all.search(a.filter.Prefix)
	p := all.prefixes[i]
	if p.remove(a); len(p.audiences) > 0 || len(p.words) > 0 {
		return
	}
	all.prefixes = slices.Delete(all.prefixes, i, i+1)
	for _, q := range all.within(i, p.text) {
		if q.parent == p {
			q.parent = p.parent
		}
	}
}

// wordsOf returns the words by which a filter is found: each change that passes has one of
// them. There are none if it asks for none. If it asks for both kinds, its tags are enough.
func wordsOf(f *feed.Filter) (words []word) {
	for _, tag := range f.Tags {
		words = append(words, word{text: tag})
	}
	if len(words) > 0 {
		return words
	}
	for _, rel := range f.Rels {
		words = append(words, word{true, rel})
	}
	return words
}

// appendWords appends the words of a change, each once.
func appendWords(words []word, c *resourcesync.Change) []word {
	for tag := range c.Tags() {
		words = append(words, word{text: tag})
	}
	for i := range c.Links {
		if w := (word{true, c.Links[i].Rel}); !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return words
}

// add adds an audience.
func (p *prefix) add(a *audience) {
	words := wordsOf(&a.filter)
	if len(words) == 0 {
		p.audiences = append(p.audiences, a)
		return
	}
	if p.words == nil {
		p.words = map[word][]*audience{}
	}
	for _, w := range words {
		p.words[w] = append(p.words[w], a)
	}
}

// remove takes out an audience.
func (p *prefix) remove(a *audience) {
	same := func(b *audience) bool { return b == a }
	words := wordsOf(&a.filter)
	if len(words) == 0 {
		p.audiences = slices.DeleteFunc(p.audiences, same)
		return
	}
	for _, w := range words {
		if left := slices.DeleteFunc(p.words[w], same); len(left) > 0 {
			p.words[w] = left
		} else {
			delete(p.words, w)
		}
	}
}

// search returns where a prefix is, or should be, and whether it is there.
func (all *audiences) search(text string) (i int, found bool) {
	return slices.BinarySearchFunc(all.prefixes, text, func(p *prefix, text string) int { return strings.Compare(p.text, text) })
}

// within returns the prefixes from the i-th on that begin with a text.
func (all *audiences) within(i int, text string) []*prefix {
	end := i
	for end < len(all.prefixes) && strings.HasPrefix(all.prefixes[end].text, text) {
		end++
	}
	return all.prefixes[i:end]
}

// prefix returns the prefix with a text, and makes it if need be.
func (all *audiences) prefix(text string) *prefix {
	i, found := all.search(text)
	if found {
		return all.prefixes[i]
	}
	p := &prefix{text: text, parent: all.longest(text)}
	all.prefixes = slices.Insert(all.prefixes, i, p)
	for _, q := range all.within(i+1, text) {
		if q.parent == p.parent {
			q.parent = p
		}
	}
	return p
}

// longest returns the longest prefix of a text, or nil. Its parents are all others.
func (all *audiences) longest(text string) *prefix {
	i, found := all.search(text)
	if found {
		return all.prefixes[i]
	}
	if i == 0 {
		return nil
	}
	p := all.prefixes[i-1]
	n := 0 // how many bytes p and text have in common
	for n < min(len(p.text), len(text)) && p.text[n] == text[n] {
		n++
	}
	for p != nil && len(p.text) > n {
		p = p.parent
	}
	return p
}

// sift calls yield with each audience that wants at least one entry of a batch, and
// with the batch as its filter leaves it (feed.Filter.Apply). yield may remove the
// audience.
func (all *audiences) sift(b *feed.Batch, yield func(*audience, *feed.Batch)) {
	var found []*prefix
	var worded []*audience
	for i := range b.Entries {
		c := &b.Entries[i].Change
		words := all.words[:0]
		for p := all.longest(c.Loc); p != nil; p = p.parent {
			if len(p.words) > 0 {
				if len(words) == 0 {
					words = appendWords(words, c)
				}
				worded = p.want(i, words, worded)
			}
			if len(p.audiences) == 0 {
				continue
			}
			if len(p.wanted) == 0 {
				found = append(found, p)
			}
			p.wanted = append(p.wanted, i)
		}
		clear(words) // they keep nothing of the change
		all.words = words[:0]
	}
	for _, p := range found {
		wanted := p.wanted
		p.wanted = nil
		for _, a := range slices.Clone(p.audiences) {
			a.cut(b, wanted, yield)
		}
	}
	for _, a := range worded {
		wanted := a.wanted
		a.wanted = nil
		a.cut(b, wanted, yield)
	}
}

// want notes the i-th entry of a batch, which has some words, for the audiences that ask for
// one of them. It appends those that have noted none before to found.
func (p *prefix) want(i int, words []word, found []*audience) []*audience {
	for _, w := range words {
		for _, a := range p.words[w] {
			n := len(a.wanted)
			if n > 0 && a.wanted[n-1] == i { // by another word
				continue
			}
			if n == 0 {
				found = append(found, a)
			}
			a.wanted = append(a.wanted, i)
		}
	}
	return found
}

// cut calls yield with the entries of a batch that pass, of those wanted, unless there is none.
func (a *audience) cut(b *feed.Batch, wanted []int, yield func(*audience, *feed.Batch)) {
	cut := &feed.Batch{Set: b.Set, After: b.After, Cursor: b.Cursor, Diverged: b.Diverged}
	for _, i := range wanted {
		if a.filter.Match(&b.Entries[i].Change) {
			cut.Entries = append(cut.Entries, b.Entries[i])
		}
	}
	if len(cut.Entries) > 0 {
		yield(a, cut)
	}
}
