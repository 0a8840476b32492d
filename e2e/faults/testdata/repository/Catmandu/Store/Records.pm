package Catmandu::Store::Records;

# A store whose records are in one file, as lines of JSON. Whoever changes them replaces
# the file.

use Catmandu::Sane;
use Moo;
use Catmandu::Store::Records::Bag;

has file => (is => 'ro', required => 1);

with 'Catmandu::Store';

1;
