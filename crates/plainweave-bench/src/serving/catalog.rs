//! Which files a load asks for, how large they are, and in which order it asks.
//!
//! The mix is that of a published experiment on static web servers: 21,600 files in 650
//! directories, 2.2 GB, described by a cumulative table over files by size. Here the table's
//! classes are made with the same sizes and the same shares of the requests, and with a scaled
//! number of files and directories. Within a class requests follow Zipf's law with exponent 1, the
//! ranks spread over the sizes at random.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::site::{self, FILES, SIZE, Site};

/// Requests that are drawn in advance and then repeated.
const DRAWN: usize = 20_000;
const SEED: u64 = 1;
/// Files and directories of the published set.
const MIX_FILES: f64 = 21_600.0;
const MIX_DIRS: f64 = 650.0;
/// Its table, cumulative: share of the requests, bytes of all files, bytes of the largest file.
const TABLE: [(f64, f64, f64); 8] = [
    (0.10, 0.5e6, 409.0),
    (0.30, 1.5e6, 716.0),
    (0.50, 8.4e6, 4_096.0),
    (0.70, 12.2e6, 5_120.0),
    (0.80, 20.1e6, 7_168.0),
    (0.90, 94.3e6, 40_960.0),
    (0.95, 126.5e6, 51_200.0),
    (1.00, 2_291.6e6, 921_600.0),
];

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) number: usize,
    pub(crate) len: usize,
}

impl Item {
    pub(crate) fn content(&self) -> Vec<u8> {
        site::content(self.number, self.len)
    }
}

/// Files, and the order in which they are asked for.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    pub(crate) items: Vec<Item>,
    /// Indices of `items`.
    pub(crate) order: Vec<usize>,
}

impl Catalog {
    /// Returns the thousand files of 1 KiB that each site has, in turn.
    pub(crate) fn small() -> Self {
        let item = |number| Item {
            path: site::path(number),
            number,
            len: SIZE,
        };

        Self {
            items: (0..FILES).map(item).collect(),
            order: (0..FILES).collect(),
        }
    }

    /// Makes a few files of one size, in turn.
    pub(crate) fn of(site: &Site, files: usize, len: usize) -> anyhow::Result<Self> {
        let item = |number| Item {
            path: format!("/size{len}/{number:03}.txt"),
            number,
            len,
        };

        let items: Vec<_> = (0..files).map(item).collect();
        items
            .iter()
            .try_for_each(|item| site.add(&item.path, item.number, item.len))?;
        Ok(Self {
            order: (0..files).collect(),
            items,
        })
    }

    /// Makes the mix, with this part of the files.
    pub(crate) fn mix(site: &Site, scale: usize) -> anyhow::Result<Self> {
        let catalog = Self::drawn(scale)?;
        catalog
            .items
            .iter()
            .try_for_each(|item| site.add(&item.path, item.number, item.len))?;
        Ok(catalog)
    }

    /// Draws the mix.
    fn drawn(scale: usize) -> anyhow::Result<Self> {
        let mut random = SmallRng::seed_from_u64(SEED);
        let dirs = (MIX_DIRS / scale as f64).ceil() as usize;
        let mut items = Vec::new();
        let mut classes = Vec::new();
        let mut below = 0.0;

        for ((share, _, _), sizes) in TABLE.iter().zip(class_sizes(scale as f64)) {
            let first = items.len();
            for len in sizes {
                let number = items.len();
                let path = format!("/mix{:03}/{number:05}.txt", number % dirs);
                items.push(Item { path, number, len });
            }

            let mut ranks: Vec<_> = (first..items.len()).collect();
            ranks.shuffle(&mut random);
            let zipf = Zipf::new(ranks.len() as f64, 1.0)?;
            classes.push((share - below, ranks, zipf));
            below = *share;
        }

        let order = (0..DRAWN).map(|_| {
            let mut chance: f64 = random.random_range(0.0..1.0);
            let mut chosen = &classes[classes.len() - 1];
            for class in &classes {
                if chance < class.0 {
                    chosen = class;
                    break;
                }
                chance -= class.0;
            }

            let rank = chosen.2.sample(&mut random) as usize;
            chosen.1[rank.clamp(1, chosen.1.len()) - 1]
        });

        Ok(Self {
            order: order.collect(),
            items,
        })
    }

    /// Returns how far the files and the requests are from the published table, as a share: what is
    /// furthest.
    pub(crate) fn deviation(&self, scale: usize) -> f64 {
        let up_to = |most: f64, item: &Item| item.len as f64 <= most;
        let of = |(share, bytes, most): &(f64, f64, f64)| {
            let here: usize = self
                .items
                .iter()
                .filter(|item| up_to(*most, item))
                .map(|item| item.len)
                .sum();
            let asked = self
                .order
                .iter()
                .filter(|&&n| up_to(*most, &self.items[n]))
                .count();
            let asked = asked as f64 / self.order.len() as f64;
            (here as f64 * scale as f64 / bytes - 1.0)
                .abs()
                .max((asked - share).abs())
        };
        TABLE.iter().map(of).fold(0.0, f64::max)
    }

    /// Returns the files that the first 80 % of the requests ask for.
    pub(crate) fn hot(&self) -> impl Iterator<Item = &Item> {
        self.items
            .iter()
            .filter(|item| item.len as f64 <= TABLE[4].2)
    }

    /// Returns the length that all files have, if they have one.
    pub(crate) fn length(&self) -> Option<usize> {
        let first = self.items.first()?.len;
        self.items
            .iter()
            .all(|item| item.len == first)
            .then_some(first)
    }

    /// In words, for the report.
    pub(crate) fn describe(&self) -> String {
        let bytes: usize = self.items.iter().map(|item| item.len).sum();
        let asked: usize = self.order.iter().map(|&n| self.items[n].len).sum();
        let mean = asked / self.order.len().max(1);
        format!(
            "{} files, {:.1} MB, {mean} bytes a request",
            self.items.len(),
            bytes as f64 / 1e6
        )
    }
}

/// Returns the sizes of each class's files: evenly spaced, but for the last class, whose spacing
/// grows by a power such that the number of all files and their bytes are those of the table.
fn class_sizes(scale: f64) -> Vec<Vec<usize>> {
    let mut classes = Vec::new();
    let mut least = 100.0;
    let mut bytes_before = 0.0;
    let mut files = 0.0;
    for (n, (_, bytes, most)) in TABLE.iter().enumerate() {
        let last = n == TABLE.len() - 1;
        let bytes_here = bytes - bytes_before;
        let count = if last {
            MIX_FILES - files
        } else {
            bytes_here / ((least + most) / 2.0)
        };

        let power = (most - least) / (bytes_here / count - least) - 1.0;
        let here = (count / scale).round().max(1.0) as usize;
        let size = |k: usize| least + (most - least) * ((k as f64 + 0.5) / here as f64).powf(power);

        // Larger than those of the class before, or they would be of that one.
        let above = least as usize + 1;
        classes.push((0..here).map(|k| (size(k) as usize).max(above)).collect());
        (least, bytes_before, files) = (*most, *bytes, files + count);
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table holds for the files that are made, at full size and scaled.
    #[test]
    fn the_mix_is_the_published_one() {
        for scale in [1.0, 10.0] {
            let classes = class_sizes(scale);
            let files: usize = classes.iter().map(Vec::len).sum();
            assert!(
                (files as f64 * scale / MIX_FILES - 1.0).abs() < 0.01,
                "{files} files at {scale}"
            );
            let mut sum = 0.0;

            for ((_, bytes, most), class) in TABLE.iter().zip(&classes) {
                sum += class.iter().map(|&len| len as f64).sum::<f64>();
                assert!(
                    (sum * scale / bytes - 1.0).abs() < 0.05,
                    "{sum} bytes up to {most} at {scale}"
                );
                assert!(class.iter().all(|&len| len as f64 <= *most));
            }
        }
    }

    /// What is made of the table is near it, and another set is not.
    #[test]
    fn a_deviation_is_found() {
        let mut catalog = Catalog::drawn(10).unwrap();
        assert!(catalog.deviation(10) < 0.05, "{}", catalog.deviation(10));
        let hot: usize = catalog.hot().map(|item| item.len).sum();
        assert!((hot as f64 * 10.0 / 20.1e6 - 1.0).abs() < 0.05, "{hot}");
        catalog
            .items
            .iter_mut()
            .for_each(|item| item.len += item.len / 8);
        assert!(catalog.deviation(10) > 0.05);
    }

    #[test]
    fn requests_follow_the_table() {
        let catalog = Catalog::drawn(200).unwrap();
        for (share, _, most) in TABLE {
            let asked = catalog
                .order
                .iter()
                .filter(|&&n| catalog.items[n].len as f64 <= most)
                .count();
            assert!(
                (asked as f64 / DRAWN as f64 - share).abs() < 0.02,
                "{asked} up to {most}"
            );
        }
    }
}
