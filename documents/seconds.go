package documents

import (
	"strings"

	"github.com/rshub/rshub/feed"
)

// Some clients in Java read no fractions of a second. So there are two forms of the
// documents with datetimes: the exact one, and one in whole seconds, in which the fraction
// is cut off. State.WholeSeconds says which form is meant. In both forms a document has the
// same entries, and cursors are exact.
//
// A document that never changes has a name for each form, and is served in both whatever
// the set's description says. So its bytes never change at its URL. The description says
// which names the indexes have, and the form of the documents without a name of their own.
//
// Cutting keeps the order of times. So what holds of exact datetimes holds of cut ones too:
// they never fall, they lie in [from, until], and the until of a list is the from of the next.

// secondsSuffix ends the name of a document in whole seconds.
const secondsSuffix = "-seconds.xml"

// inForm returns the name of a document in the form that s says. name is that of the exact
// one.
func inForm(s feed.State, name string) string {
	if s.WholeSeconds {
		return strings.TrimSuffix(name, ".xml") + secondsSuffix
	}
	return name
}

// exactName returns the name that the exact form of a document has, and whether name is
// that of the form in whole seconds.
func exactName(name string) (exact string, whole bool) {
	if stem, ok := strings.CutSuffix(name, secondsSuffix); ok {
		return stem + ".xml", true
	}
	return name, false
}

// formTag returns a tag as Server.tag does. It is another one for each form.
func (d *Server) formTag(s feed.State, values ...any) string {
	if s.WholeSeconds {
		values = append(values, "seconds")
	}
	return d.tag(values...)
}

// modified returns the datetime of the newest entry of a document, in microseconds, if
// nothing but an entry changes the document. It returns 0 for the form in whole seconds of a
// document without a name of its own: its set may have had the exact form when a client last
// asked, and a Last-Modified does not tell the two forms apart.
func modified(s feed.State, micros int64) int64 {
	if s.WholeSeconds {
		return 0
	}
	return micros
}

// xmlWriter returns a writer of documents in the form that s says.
func xmlWriter(s feed.State) *feed.XMLWriter {
	w := feed.NewXMLWriter()
	if s.WholeSeconds {
		w.WholeSeconds()
	}
	return w
}
