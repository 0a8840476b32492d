// Package accept parses the request headers Accept and Accept-Encoding (RFC 9110 section 12.5), and
// ignores elements that are not valid.
//
// It chooses among the forms that a handler offers, and knows none of them. All handlers use it, so
// that the same header means the same everywhere.
package accept

import (
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// How exactly an element of Accept matches a media type. The most matchExact matching
// element decides.
const (
	matchNone  = iota // nothing matches
	matchAny        // */*
	matchType          // text/*
	matchExact           // text/html
)

// Media returns the offer that the header Accept prefers: the one with the greatest
// weight, among those the one that Accept names most exactly, and among those the first.
// Offers that Accept does not name come last; so a client that names no offer still gets
// an answer. An offer that Accept refuses (q=0) is never returned. Media returns "" if
// all of them are refused. Offers are media types in lower case, without parameters.
// Media ignores parameters in Accept other than q.
func Media(h http.Header, offers ...string) (best string) {
	bestWeight, bestMatch := -1.0, -1
	for _, offer := range offers {
		weight, match := mediaWeight(h, offer)
		refused := match != matchNone && weight == 0
		if !refused && (weight > bestWeight || weight == bestWeight && match > bestMatch) {
			best, bestWeight, bestMatch = offer, weight, match
		}
	}
	return best
}

// Names reports whether the header Accept names a media type itself, and not only by
// a wildcard, and does not refuse it.
func Names(h http.Header, mediaType string) bool {
	weight, match := mediaWeight(h, mediaType)
	return match == matchExact && weight > 0
}

// mediaWeight returns the weight of a media type, and how exactly Accept names it.
func mediaWeight(h http.Header, mediaType string) (weight float64, match int) {
	kind, _, _ := strings.Cut(mediaType, "/")
	for e := range elements(h.Values("Accept")) {
		m := matchNone
		switch e.value {
		case mediaType:
			m = matchExact
		case kind + "/*":
			m = matchType
		case "*/*", "*": // old clients of Java send the second
			m = matchAny
		}
		if m > match {
			weight, match = e.weight, m
		} else if m == match && m != matchNone {
			weight = max(weight, e.weight)
		}
	}
	return weight, match
}

// Gzip reports whether the header Accept-Encoding prefers gzip to the plain form. A
// coding that the header does not name has the weight of "*". If "*" is not there
// either, gzip is refused and the plain form is accepted.
func Gzip(h http.Header) bool {
	zipped, plain, other := -1.0, -1.0, -1.0 // not named
	for e := range elements(h.Values("Accept-Encoding")) {
		if e.parameters {
			continue // a coding has no parameters
		}
		switch e.value {
		case "gzip", "x-gzip":
			zipped = max(zipped, e.weight)
		case "identity":
			plain = e.weight
		case "*":
			other = e.weight
		}
	}
	if zipped < 0 {
		zipped = other
	}
	if plain < 0 {
		plain = other
	}
	return zipped > 0 && zipped >= plain
}

// Zstd reports whether the header Accept-Encoding names zstd, and does not prefer the plain
// form. A "*" is not enough, because few clients that send it know zstd.
func Zstd(h http.Header) bool {
	zstd, plain := 0.0, 0.0
	for e := range elements(h.Values("Accept-Encoding")) {
		switch e.value {
		case "zstd":
			zstd = max(zstd, e.weight)
		case "identity":
			plain = e.weight
		}
	}
	return zstd > 0 && zstd >= plain
}

// An element is one member of a header's list.
type element struct {
	value      string  // in lower case
	weight     float64 // from 0 to 1
	parameters bool    // it has parameters besides the weight
}

// elements yields the readable elements of a header.
func elements(lines []string) iter.Seq[element] {
	return func(yield func(element) bool) {
		for text := range splitList(strings.Join(lines, ",")) {
			value, params, err := mime.ParseMediaType(text)
			if err != nil {
				continue
			}
			e := element{value: value, weight: 1}
			if q, ok := params["q"]; ok {
				delete(params, "q")
				if e.weight, err = strconv.ParseFloat(q, 64); err != nil || !(0 <= e.weight && e.weight <= 1) {
					continue
				}
			}
			e.parameters = len(params) > 0
			if !yield(e) {
				return
			}
		}
	}
}

// splitList yields the parts of a list between commas. A comma in a quoted string
// separates nothing.
func splitList(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		begin, quoted := 0, false
		for i := 0; i < len(list); i++ {
			switch c := list[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case c == ',' && !quoted:
				if !yield(list[begin:i]) {
					return
				}
				begin = i + 1
			}
		}
		yield(list[begin:])
	}
}
