package Catmandu::Store::Records::Bag;

use Catmandu::Sane;
use Moo;
use Catmandu::Hits;
use JSON::PP;

with 'Catmandu::Bag';

sub records {
    my ($self) = @_;
    open my $in, '<', $self->store->file or die $self->store->file . ": $!";
    my @all = map { decode_json($_) } <$in>;
    close $in;
    return @all;
}

# search answers the few queries that Dancer::Plugin::Catmandu::OAI asks.
sub search {
    my ($self, %args) = @_;
    my ($query, @all) = ($args{cql_query}, $self->records);
    @all = grep { $_->{_id} eq $1 } @all if $query =~ /^_id exact "([^"]*)"$/;
    @all = grep { $_->{datestamp} ge $1 } @all if $query =~ /datestamp >= "([^"]*)"/;
    @all = grep { $_->{datestamp} le $1 } @all if $query =~ /datestamp <= "([^"]*)"/;
    my ($start, $limit, $total) = ($args{start} // 0, $args{limit}, scalar @all);
    my @hits = grep { defined } @all[$start .. $start + $limit - 1];
    return Catmandu::Hits->new(start => $start, limit => $limit, total => $total, hits => \@hits);
}

sub generator {
    my ($self) = @_;
    my @all = $self->records;
    return sub { shift @all };
}

sub get {
    my ($self, $id) = @_;
    my ($record) = grep { $_->{_id} eq $id } $self->records;
    return $record;
}

sub add        { die "records are changed in their file" }
sub delete     { die "records are changed in their file" }
sub delete_all { die "records are changed in their file" }

1;
